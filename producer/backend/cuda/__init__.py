"""CUDA kernels, their compilation, and the backend `cupy`.

``kernels/`` holds device code only; `compile` is the only caller of NVRTC; `launch` computes sizes and launches, with
the names of the CPU functions; `backend` is the backend behind the protocols.
"""
