package httpapi

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"time"

	"github.com/gin-gonic/gin"

	"example.com/trawl/pkg/crawl"
	"example.com/trawl/pkg/obs"
	"example.com/trawl/pkg/queue"
)

// greetTimeout bounds the look at the store that begins a start.
const greetTimeout = 2 * time.Second

// What /readyz names as failing, beside the names of Options.Checks. The first two are one part
// with two ways to fail.
const (
	failingRedis   = "redis"        // does not answer
	failingMemory  = "redis_memory" // answers, and has none left
	failingProcess = "process"      // this one is stopping
)

// ready says whether a submission would be taken now, and if not, why. Of the workers it
// reports how many there are, and no more: without any, jobs are taken all the same and wait.
func (s *Server) ready(c *gin.Context) {
	ctx, cancel := context.WithTimeout(c.Request.Context(), obs.ReadyTimeout)
	defer cancel()
	failing, err := s.unready(ctx)
	if err != nil {
		x := exchangeIn(c)
		p := x.fail(err)
		p.Failing = failing
		s.extend(c)
		p.write(c)
		return
	}
	body := gin.H{"status": "ready"}
	if s.o.Queue != nil {
		if n, err := queue.Workers(ctx, s.o.Queue); err == nil {
			body["workers"] = n
		} else {
			s.log.DebugContext(ctx, "the workers cannot be counted", slog.Any("err", err))
		}
	}
	c.JSON(http.StatusOK, body)
}

// unready returns what fails, and of that the error of the first, as a fault for a person.
func (s *Server) unready(ctx context.Context) (failing []string, first error) {
	if s.stopping.Load() {
		return []string{failingProcess}, crawl.Faultf(crawl.CodeUnavailable, "This process is stopping. Ask another one.")
	}
	fails := func(name string, err error, otherwise string) {
		var f *crawl.Fault
		if !errors.As(err, &f) || f.Code == crawl.CodeInternal {
			err = &crawl.Fault{Code: crawl.CodeUnavailable, Message: otherwise, Err: err}
		}
		if failing = append(failing, name); first == nil {
			first = err
		}
	}
	if err := s.o.Jobs.Ready(ctx); err != nil {
		name := failingRedis
		if crawl.CodeOf(err) == crawl.CodeOverloaded {
			name = failingMemory
		}
		fails(name, err, "The store does not answer as it should. Look at Redis.")
	}
	for _, c := range s.o.Checks {
		if err := c.Ready(ctx); err != nil {
			fails(c.Name, err, "A condition does not hold, see failing. The log of the service says more.")
		}
	}
	return failing, first
}

// greet looks at the store when the server starts: the first submission is late for learning
// that the store refuses this process. The server serves all the same: a store that is away
// comes back.
func (s *Server) greet(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), greetTimeout)
	defer cancel()
	if failing, err := s.unready(ctx); err != nil && !s.stopping.Load() {
		s.log.WarnContext(ctx, "the store is not ready", slog.Any("failing", failing), slog.Any("err", err))
	}
}
