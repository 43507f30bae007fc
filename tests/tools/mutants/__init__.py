"""The switch-off campaign: each rule is disabled in turn, and the test records must notice."""
