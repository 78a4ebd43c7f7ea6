"""Pure array kernels: arrays in, arrays out; safe under `jax.jit` and `jax.vmap`. They import JAX and NumPy only."""
