"""What runs inside a worker process: one module a contender, each in the environment that has its library.

Nothing here imports Setpoint (but `setpoint_job`), because the peers live in environments of their own.
"""
