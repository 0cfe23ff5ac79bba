# Step 01 in a debugger: the same commands for gdb on the simulator and for cuda-gdb on a GPU.
#   gdb      -q -batch -x tools/learn/01_naive_mha.gdb build/sim-debug/bin/01_naive_mha
#   cuda-gdb -q -batch -x tools/learn/01_naive_mha.gdb build/gpu-debug/bin/01_naive_mha
# docs/debugging.md walks through it. A test holds each "# stops at" to the line that the breakpoint names.
set pagination off
set confirm off
set breakpoint pending on
set print frame-info source-line

echo \n---- 1. Before the launch, in host code: what was asked for\n
break launch_row_per_thread
run --variant row_per_thread --heads 2 --seq-q 100 --dim 32 --no-check
print l.shape.seq_q
print l.shape.scale
print l.q.row_stride
delete

echo \n---- 2. In the kernel: what it was given\n
tbreak naive_mha::scores_row_per_thread
continue
print shape

echo \n---- 3. A thread without work: 100 queries, 128 threads in the block\n
# stops at: if (i >= shape.seq_q) return;
tbreak 02_row_per_thread.cuh:31 if i == 105
continue
print threadIdx
print blockDim
print i
print shape.seq_q

echo \n---- 4. Inside the loop, a thread with work: query 7, key 3\n
# stops at: score = shape.scale * dot;
tbreak 02_row_per_thread.cuh:42 if i == 7 && j == 3 && head == 1
continue
print threadIdx
print j
print visible
print q_row[0]
print dot
print shape.scale * dot
kill
quit
