"""What the workflow and a session agree on; importable without anything else of the session."""

__all__ = ["WORKFLOW_PID"]

# Environment variable with the process id of the workflow: a session ends when that process does.
WORKFLOW_PID = "SATURATE_WORKFLOW_PID"
