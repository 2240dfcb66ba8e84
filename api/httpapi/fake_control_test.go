package httpapi

import (
	"context"

	"example.com/trawl/pkg/crawl"
)

func (f *fakeJobs) Pause(ctx context.Context, ref crawl.JobRef) (crawl.State, []crawl.Ring, error) {
	return f.control(ctx, ref, f.pause, crawl.Paused)
}

func (f *fakeJobs) Resume(ctx context.Context, ref crawl.JobRef) (crawl.State, []crawl.Ring, error) {
	return f.control(ctx, ref, f.resume, crawl.Running)
}

func (f *fakeJobs) control(
	ctx context.Context, ref crawl.JobRef, change func(crawl.JobRef, *crawl.Job) ([]crawl.Ring, error), state crawl.State,
) (crawl.State, []crawl.Ring, error) {
	if err := f.hang(ctx); err != nil {
		return "", nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.asked = append(f.asked, ref)
	j, ok := f.jobs[ref]
	switch {
	case ctx.Err() != nil:
		return "", nil, ctx.Err()
	case f.err != nil:
		return "", nil, f.err
	case !ok:
		return "", nil, crawl.Faultf(crawl.CodeNotFound, "no such job")
	case j.State.Terminal() || j.State == crawl.Cancelling:
		return "", nil, crawl.Faultf(crawl.CodeWrongState, "Job %s is %s.", ref.ID, j.State)
	}
	j.State = state
	var rings []crawl.Ring
	if change != nil {
		var err error
		if rings, err = change(ref, &j); err != nil {
			return "", nil, err
		}
	}
	f.jobs[ref] = j
	return j.State, rings, nil
}

func (f *fakeJobs) Plan(ctx context.Context, ref crawl.JobRef) (crawl.Plan, error) {
	if err := f.hang(ctx); err != nil {
		return crawl.Plan{}, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.asked = append(f.asked, ref)
	p, ok := f.plans[ref]
	if !ok {
		return p, crawl.Faultf(crawl.CodeNotFound, "no such job")
	}
	return p, f.err
}
