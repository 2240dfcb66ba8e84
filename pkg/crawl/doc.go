// Package crawl holds the words and the rules of Trawl: what a job is, which
// states it and its pages pass through, what may be crawled, and how anything
// that goes wrong is named. It does no I/O and knows no technology; every other
// package speaks in its terms.
//
// # A job
//
//	             ┌─────────────── cancel ───────────────┐
//	             │                                      ▼
//	submit ──► queued ──► running ──────────────► (one of the ends)
//	            │ ▲         │ ▲  │                  completed
//	      pause │ │   pause │ │  │ cancel,          completed_with_errors
//	            ▼ │ resume  ▼ │  │ time_limit,      failed
//	          ┌───────────────┐  │ byte_limit       cancelled
//	          │    paused     │  ▼                      ▲
//	          └───────────────┘ cancelling ─────────────┘
//
// A resumed job is queued until the tenant's running limit lets it go on. Pages that were
// in flight when a job was paused go on: the last of them ends a paused job, or a resumed
// one that is queued, as it would have ended a running one; the limit of bytes, and a
// cancel, wind these down as they do a running one.
//
// An end is final: neither the state nor any count of an ended job changes
// again. cancelling lasts until the last request in flight was given back or
// revoked, four seconds at most.
//
// # A page
//
//	               ┌──────────── release, killed worker ───────────┐
//	               ▼                                               │
//	admit ──► queued ──► active (leased by a slice) ──► accepted   │
//	               ▲        │  │                   ├──► failed     │
//	               │        │  │                   └──► skipped    │
//	    deferred ──┘ ◄──────┘  └───────────────────────────────────┘
//	  (waits for its host or a retry)
//
//	queued, deferred, active ──► cancelled   (only by the end of the job)
//
// The container that holds a page is its state: see package store.
package crawl
