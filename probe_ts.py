import sys; sys.argv = ["ts", "python", "none"]
from ts import *
# threads: eager twice
def th(mode):
    res = {}; lock = threading.Lock()
    def work(n):
        with lock: seed(n); a = Net().double(); b = copy.deepcopy(a)
        oa, ob = optim.AdamW(a.parameters(), .01), optim.AdamW(b.parameters(), .01)
        step = tapeless.train_step(b, ce, ob, backend="python") if mode == "ours" else None
        for k in range(4):
            x, y = data(k + n); la = estep(a, oa, ce, x, y); lb = step(x, y) if step else estep(b, ob, ce, x, y)
        res[n] = max((p - q).abs().max().item() for p, q in zip(a.parameters(), b.parameters()))
    ts = [threading.Thread(target=work, args=(n,)) for n in range(3)]; [x.start() for x in ts]; [x.join() for x in ts]
    print(mode, res)
th("eager"); torch._dynamo.reset(); th("ours")
for n in range(3):
    torch._dynamo.reset(); seed(n); a = Net().double(); b = copy.deepcopy(a)
    oa, ob = optim.AdamW(a.parameters(), .01), optim.AdamW(b.parameters(), .01); step = tapeless.train_step(b, ce, ob, backend="python")
    for k in range(4): x, y = data(k + n); estep(a, oa, ce, x, y); step(x, y)
    print("alone", n, max((p - q).abs().max().item() for p, q in zip(a.parameters(), b.parameters())))
