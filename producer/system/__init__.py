"""Machine facts and services: environment, atomic files, forked processes, progress, torch files read without torch."""
