import sys, time
from collections import Counter
from hack.faults.simulation import run_seed
from hack.faults.fault_counts import shares

if sys.argv[1] == "one":
    o = run_seed(int(sys.argv[2]))
    print("\n".join(o.trace))
    print(o.problems)
    sys.exit()
t = time.time()
a, n = int(sys.argv[1]), int(sys.argv[2])
c = Counter()
cs = []
for s in range(a, n):
    o = run_seed(s)
    cs.append(o.counts)
    if o.problems:
        print(s, o.digest, o.bound, round(o.seconds), o.problems[:2])
print((time.time() - t) / (n - a))
for k, v in shares(cs).items():
    print(f"{k:40s}{v:.2f}")
