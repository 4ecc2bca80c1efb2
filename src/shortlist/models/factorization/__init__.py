"""Factor models: BPRMF, LogMF, CRRMF, DKBPRMF, HRM and DKHRM on one training engine."""
