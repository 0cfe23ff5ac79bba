link_step(06_backward 05_flash_v2)
