package httpapi

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"

	"github.com/gin-gonic/gin"

	"example.com/trawl/pkg/crawl"
	"example.com/trawl/pkg/obs"
	"example.com/trawl/pkg/queue"
)

// recorder keeps what asynqmon answers, so that it goes out as this service answers.
type recorder struct {
	header http.Header
	status int
	body   bytes.Buffer
}

func newRecorder() *recorder { return &recorder{header: http.Header{}, status: http.StatusOK} }

// Header implements [http.ResponseWriter].
func (r *recorder) Header() http.Header { return r.header }

// Write implements [http.ResponseWriter].
func (r *recorder) Write(b []byte) (int, error) { return r.body.Write(b) }

// WriteHeader implements [http.ResponseWriter].
func (r *recorder) WriteHeader(status int) { r.status = status }

// serveMonitorAPI answers a call of the page: JSON, or why not.
func (s *Server) serveMonitorAPI(c *gin.Context) {
	err := monitorPages(c.Request.URL.Query())
	if err == nil && c.Request.URL.Path == monitorAPI+"metrics" {
		// It would ask a Prometheus, of which asynqmon is told none.
		err = crawl.Faultf(crawl.CodeNotFound, "no such route")
	}
	if err == nil {
		err = s.checkArchive(c.Request)
	}
	if err != nil {
		s.refuseMonitor(c, err)
		return
	}
	answer := newRecorder()
	s.monitor.asynqmon.ServeHTTP(answer, asGet(c.Request))
	s.extend(c) // a slow Redis used the time for the answer up
	switch {
	case answer.status >= http.StatusBadRequest:
		s.refuseMonitor(c, monitorFault(answer.status, strings.TrimSpace(answer.body.String())))
	case answer.body.Len() == 0:
		c.Status(http.StatusNoContent)
	default:
		body, err := cleanAnswer(answer.body.Bytes())
		if err != nil { // the page, which asynqmon answers for what it does not know
			s.refuseMonitor(c, crawl.Faultf(crawl.CodeNotFound, "no such route"))
			return
		}
		c.Data(http.StatusOK, "application/json", body)
	}
}

// checkArchive refuses to archive what would fall out of the archive and be left behind.
func (s *Server) checkArchive(r *http.Request) error {
	rest, of := strings.CutPrefix(r.URL.Path, monitorAPI+"queues/")
	if !of || !strings.HasSuffix(rest, "archive") && !strings.HasSuffix(rest, "archive_all") {
		return nil
	}
	name, _, _ := strings.Cut(rest, "/")
	return queue.CheckArchivable(r.Context(), s.monitor.redis, name)
}

// cleanAnswer is an answer of asynqmon's with what tasks failed with made safe to show: a message
// may quote a URL with a password in it. An error says that it is no JSON.
func cleanAnswer(body []byte) ([]byte, error) {
	var answer any
	dec := json.NewDecoder(bytes.NewReader(body))
	dec.UseNumber() // sizes are not made floating
	if err := dec.Decode(&answer); err != nil {
		return nil, err
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("something follows the value")
	}
	cleanErrors(answer)
	return json.Marshal(answer)
}

func cleanErrors(v any) {
	switch v := v.(type) {
	case []any:
		for _, e := range v {
			cleanErrors(e)
		}
	case map[string]any:
		for name, e := range v {
			if text, ok := e.(string); ok && name == "error_message" {
				v[name] = obs.Clean(text)
			} else {
				cleanErrors(e)
			}
		}
	}
}

// monitorFault says what asynqmon could not do. It answers almost everything as 500, with a text
// of asynq's or of Redis'.
func monitorFault(status int, text string) error {
	has := func(parts ...string) bool {
		for _, p := range parts {
			if strings.Contains(text, p) {
				return true
			}
		}
		return false
	}
	switch {
	case has("NOPERM", "ACL failure in script"):
		return &crawl.Fault{
			Code: crawl.CodeUnavailable, Err: errors.New(text),
			Message: "Redis does not let the API's user do this. Grant it what deployments/redis/users.acl " +
				"of this version does, for the monitor.",
		}
	case has("WRONGTYPE", "attempt to "): // the latter is Lua's, in a script of asynq's
		return &crawl.Fault{
			Code: crawl.CodeUnavailable, Err: errors.New(text),
			Message: "The queue holds something that asynq cannot read: an id without its task, or a key of another type. " +
				"The first a worker takes away within seconds: reload then. Otherwise look in Redis for a key asynq:* " +
				"whose TYPE is not asynq's, and delete it; the API's log has what Redis said.",
		}
	case has("already paused", "is not paused", "not empty", "already archived", "active state", "already running",
		"pending state"):
		return crawl.Faultf(crawl.CodeWrongState, "The queue did not do that: %s", obs.Clean(text))
	case status == http.StatusNotFound || has("not found", "NOT_FOUND", "does not exist"):
		return crawl.Faultf(crawl.CodeNotFound, "no such queue or task")
	case status == http.StatusBadRequest:
		return malformed("The body is not what this call takes: task_ids, a list of ids.")
	}
	return &crawl.Fault{
		Code: crawl.CodeUnavailable, Err: errors.New(text),
		Message: "The queue does not answer. Check that Redis runs and has memory left; jobs go on when it does.",
	}
}

// refuseMonitor answers why not: as a problem, or to the page in plain words. The page (axios)
// takes "application/json, text/plain" and shows what it gets; of JSON it would show nothing, or
// break.
func (s *Server) refuseMonitor(c *gin.Context, err error) {
	accept := c.Request.Header.Get("Accept")
	if !strings.Contains(accept, "text/plain") || strings.Contains(accept, problemType) {
		s.refuse(c, err)
		return
	}
	x := exchangeIn(c)
	s.extend(c)
	p := x.fail(err)
	for name, values := range p.header {
		c.Writer.Header()[name] = values
	}
	c.Data(p.Status, "text/plain; charset=utf-8", []byte(p.Detail+"\n"))
	c.Abort()
}
