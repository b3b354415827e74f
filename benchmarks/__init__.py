"""Speed and memory, printed as figures and as ratios to a yardstick measured in the same run. Nothing here asserts.

``python -m benchmarks`` (``make bench``) has two parts. ``brain`` and ``replay`` time calls in this process. The other
groups load proxies over loopback: the engine alone (``direct``), nginx, the form one writes first (``naive``) and
``adaptive-gamma serve`` (``ours``; ``--also LABEL=FOLDER`` adds the build of another checkout), all in front of the
same mock engine. That engine and the load generator are C, built with the system's compiler when the run starts.

The load, so that figures can be compared with others': requests of 1.05 kB; ``requests`` is a closed loop of 16
connections; ``chunks`` is 250 streams of 20 events a second, each event a chunk of some 250 bytes, watched while all of
them flow; ``latency`` an open loop of 100 requests a second, counted from when each was due; ``ladder`` paced streams,
1,000 started a second, with the delay of every event from the engine's clock to the client's; ``memory`` 1,000 streams
of 2 events a second; ``disconnect`` the slowest of some clients that leave. CPU is utime + stime of all its processes.

On a busy machine trust the CPU figures and their ratios within one run, nothing else: the title tells the load.
"""
