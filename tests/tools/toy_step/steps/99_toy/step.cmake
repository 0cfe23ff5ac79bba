link_step(99_toy 03_online_softmax)
