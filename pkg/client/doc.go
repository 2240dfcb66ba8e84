// Package client is the Go client of Trawl's HTTP API: what other services import to
// submit crawl jobs and to read what became of them.
//
//	c, err := client.New("http://127.0.0.1:8008", key)
//	job, err := c.Submit(ctx, client.Spec{SeedURL: "https://docs.example.org/", MaxPages: 50})
//	ended, err := c.Wait(ctx, job.ID)
//	for page, err := range c.Records(ctx, job.ID) { … }
//
// A job may take values out of its pages ([Fields]) and keep their content ([ContentFormat]):
//
//	spec.Fields = client.Fields{{Name: "title", Selector: "h1", Required: true}}
//	spec.Collection = &client.Collection{Name: "docs"}
//	…
//	err := page.Decode(&doc)
//
// A collection keeps the records of many jobs, one item a key: [Client.Items], [Client.Analytics].
// [Client.Extract] tries fields on one page. [Client.StreamRecords] and [Client.StreamItems] read
// a million of them in the memory of one, and go on where a connection breaks.
//
// Every call takes a context, which bounds it with all its repetitions. All calls can be
// sent again without harm: reads, pauses, cancels, deletions, extractions, and submissions and
// retries of failed URLs, which always carry an idempotency key. So a call is repeated, up to five tries in all, when no whole answer
// came or the service or a gateway says 429, 500, 502, 503 or 504: after a random pause
// that grows, not before the time that the service named, and not beyond the end of the
// context. [WithRetries] changes the number. [Client.Wait] and [Follow] outlast any
// outage.
//
// A refusal is an [*Error] with a stable [Code]:
//
//	if errors.Is(err, client.CodeNotFound) { … }
//
// Every error begins with the call that failed, such as "submit: ", and wraps its cause.
// None shows the key, and all texts that came over the network are fit for a terminal.
//
// The package needs nothing but the standard library.
package client
