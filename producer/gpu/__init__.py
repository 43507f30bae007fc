"""The producer on a GPU: kernels, their compilation, and the backend `cupy`.

``kernels/`` holds device code only; `producer.gpu.compile` is the only caller of NVRTC; `producer.gpu.launch` computes
sizes and launches, with the names of the CPU functions; `producer.gpu.backend` is the backend behind the protocols.
"""
