"""What Tapeless costs and gains: training steps, first calls, memory and compile time, next to eager and aot_eager."""
