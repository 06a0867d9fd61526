"""What a scraper keeps of a run."""

import gzip
import json

from bench.parse.scrapes import scrape_tables


def write_scrapes(path, scrapes):
    with gzip.open(path, "wt", encoding="utf-8") as file:
        file.writelines(json.dumps(scrape) + "\n" for scrape in scrapes)
    return path


def scraped(folder, *texts, endpoint="u", step_s=1.0):
    """The table of a run whose endpoint said `texts`, from 0 s on."""
    moments = [slot * step_s for slot in range(len(texts))]
    scrapes = (
        {"slot": slot, "endpoint": endpoint, "due": at, "sent": at, "received": at, "text": text}
        for slot, (at, text) in enumerate(zip(moments, texts, strict=True))
    )
    return scrape_tables(write_scrapes(folder / "t.jsonl.gz", scrapes), 0.0)[1]
