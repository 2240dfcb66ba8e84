package crawler

import (
	"context"
	"log/slog"

	"example.com/trawl/pkg/crawl"
	"example.com/trawl/pkg/store"
	"example.com/trawl/worker/fetch"
)

// validators answers by what the site can tell whether the page has changed since an earlier
// crawl took it into the collection. They are of the page itself, not of where another leads; and
// a job that keeps content needs that of every page.
func (k *taking) validators(ctx context.Context) fetch.Validators {
	w, it := &k.t.wants, &k.page.item
	if w.collection == nil || len(w.formats) > 0 || it.FetchURL != "" || it.Hops > 0 {
		return fetch.Validators{}
	}
	visit, err := k.t.c.o.Store.Visited(ctx, k.t.sl, k.source)
	if err != nil {
		// The whole page says more than a 304 does.
		k.t.log.DebugContext(ctx, "the last visit of a page is not known", slog.Any("err", err))
		return fetch.Validators{}
	}
	if visit == nil || visit.Under != w.under {
		return fetch.Validators{}
	}
	k.visit = visit
	return fetch.Validators{ETag: visit.ETag, LastModified: visit.LastModified}
}

// unchanged gives the result of a 304 what the page had when it was visited.
func (k *taking) unchanged(res *fetch.Result) {
	if k == nil || !res.NotModified || k.visit == nil {
		return
	}
	res.Page.Title = k.visit.Title
	for _, l := range k.visit.Links {
		if u, err := crawl.ParseURL(l.URL); err == nil {
			res.Links = append(res.Links, fetch.Link{URL: u, Key: u.Key(), NoFollow: l.NoFollow})
		}
	}
}

// visited is what is kept of a page to ask later whether it has changed; nil for nothing.
func (k *taking) visited(res *fetch.Result) *store.Visit {
	if res.NotModified {
		return k.visit
	}
	v := fetch.ValidatorsOf(res.Header)
	moved := k.page.item.FetchURL != "" || res.Hops > 0 || res.Final != k.source
	if moved || v == (fetch.Validators{}) || !res.Robots.UnavailableAfter.IsZero() {
		return nil
	}
	visit := &store.Visit{
		ETag: v.ETag, LastModified: v.LastModified, Under: k.t.wants.under, Title: res.Page.Title,
		Links: make([]store.VisitedLink, 0, len(res.Links)),
	}
	for _, l := range res.Links {
		visit.Links = append(visit.Links, store.VisitedLink{URL: l.URL.String(), NoFollow: l.NoFollow || res.Robots.NoFollow})
	}
	return visit
}
