"""The log of a job by line; that of an application is in apps.logs. kernel.textlog reads it."""
