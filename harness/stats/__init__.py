"""Statistics of an evaluation: pure functions over per-doc scores; no I/O.

intervals  one score and its uncertainty          `estimate`, `variance_parts`
forms      the interval forms it picks from       `wilson`, `mid_p`, `weighted_mid_p`
paired     candidate against baseline, by doc     `paired`
power      what a gate can see, before it runs    `mde`, `docs_needed`, `decidable`
agreement  two judges on the same outputs         `agreement`, `differential`
ppi        figures put right by labels            `corrected`, `corrected_delta`
gate       the printed rule                       `verdict`, `decide`, `exit_code`
"""
