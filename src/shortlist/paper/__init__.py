"""The reproduction of the Dynamic-K paper: experiments, tables, figures and verdicts."""
