package httpapi

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"example.com/trawl/pkg/crawl"
	"example.com/trawl/pkg/store"
)

// whsec is a secret of 24 bytes, "hush" six times.
const whsec = "whsec_aHVzaGh1c2hodXNoaHVzaGh1c2hodXNo"

const hooked = `{"urls":["https://site.test/"],"webhook":{"url":"HTTPS://Receiver.Test:443/hook?token=a b",` +
	`"events":["job.failed","job.running"],"secret":"` + whsec + `"}}`

// A webhook reaches the store as it is to be called, whatever may be crawled here, and fits
// the document. Its secret is shown nowhere.
func TestWebhookIsStoredAndNotShown(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.server.o.Sources, _ = crawl.ParseSources("https://site.test/")
	doc := openAPI(t, b)
	if err := doc.check(hooked, "components", "schemas", "Submission"); err != nil {
		t.Error(err)
	}
	a := b.call("POST", "/v1/jobs", hooked)
	var got struct {
		ID   string `json:"job_id"`
		Spec struct {
			Webhook map[string]any `json:"webhook"`
		} `json:"spec"`
	}
	a.decode(t, 202, &got)
	want := &crawl.Webhook{
		URL:    "https://receiver.test/hook?token=a%20b",
		Events: []crawl.EventType{crawl.EventFailed, crawl.EventRunning}, Secret: whsec,
	}
	if d := cmp.Diff(want, b.created[0].Plan.Webhook); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
	if plan, err := json.Marshal(b.created[0].Plan); err != nil || strings.Contains(string(plan), "whsec") {
		t.Errorf("the plan, which each slice reads, holds the webhook: %s, %v", plan, err)
	}
	shown := map[string]any{
		"url": "HTTPS://Receiver.Test:443/hook?token=a b", "events": []any{"job.failed", "job.running"}, "secret": "***",
	}
	if d := cmp.Diff(shown, got.Spec.Webhook); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
	all := a.body + string(b.created[0].Spec)
	for _, path := range []string{"/v1/jobs/" + got.ID, "/v1/jobs", "/v1/jobs/" + got.ID + "/webhooks"} {
		all += b.call("GET", path, "").body
	}
	for _, secret := range []string{`"` + whsec + ` "`, `"aHVzaGh1c2hodXNoaHVzaGh1c2hodXNo"`, `["` + whsec + `"]`} {
		refused := b.call("POST", "/v1/jobs", `{"urls":["https://site.test/"],"webhook":{"url":"http://u:hush@r.test/","secret":`+secret+`}}`)
		refused.wantProblem(t, 422, crawl.CodeInvalid)
		all += refused.body
	}
	if all += b.logs.String(); strings.Contains(all, "aHVzaGh1") || strings.Contains(all, "hush@") {
		t.Errorf("a secret is shown: %s", all)
	}
}

// The secret is input, too: another one under the same idempotency key is a conflict.
func TestWebhookIsPartOfTheInput(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	key := header("Idempotency-Key", "k")
	if a := b.call("POST", "/v1/jobs", hooked, key); a.status != 202 {
		t.Fatalf("%d %s", a.status, a.body)
	}
	if a := b.call("POST", "/v1/jobs", hooked, key); a.header.Get("Idempotent-Replayed") != "true" {
		t.Errorf("%d %s", a.status, a.body)
	}
	other := strings.Replace(hooked, whsec, whsec[:len(whsec)-4]+"AAAA", 1)
	b.call("POST", "/v1/jobs", other, key).wantProblem(t, 409, crawl.CodeKeyReused)
}

// A preview looks at the webhook's form and does nothing with it.
func TestPreviewIgnoresTheWebhook(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	if a := b.call("POST", "/v1/jobs/preview", hooked); a.status != 200 || len(b.created) != 0 {
		t.Errorf("%d %s", a.status, a.body)
	}
}

func TestWebhookDeliveries(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	doc := openAPI(t, b)
	at := time.Date(2026, 5, 6, 7, 8, 9, 120_000_000, time.UTC)
	job, bare := b.add("a", crawl.Completed), b.add("a", crawl.Running)
	b.events[job] = []store.WebhookEvent{
		{ID: "evt_1", Type: crawl.EventRunning, State: store.EventFailed, Attempts: 8, Status: 302, Error: "It answered 302.", At: at},
		{ID: "evt_2", Type: crawl.EventCompleted, State: store.EventDelivered, Attempts: 1, Status: 204, At: at, DeliveredAt: at},
		{ID: "evt_3", Type: crawl.EventCompleted, State: store.EventPending, At: at, NextAt: at},
	}
	a := b.call("GET", "/v1/jobs/"+job.ID+"/webhooks", "")
	var got, want any
	a.decode(t, 200, &got)
	const moment = `"2026-05-06T07:08:09.120Z"`
	if err := json.Unmarshal([]byte(`{"items":[`+
		`{"event_id":"evt_1","type":"job.running","state":"failed","attempts":8,"status":302,"error":"It answered 302.","created_at":`+
		moment+`,"next_at":null,"delivered_at":null},`+
		`{"event_id":"evt_2","type":"job.completed","state":"delivered","attempts":1,"status":204,"error":null,"created_at":`+
		moment+`,"next_at":null,"delivered_at":`+moment+`},`+
		`{"event_id":"evt_3","type":"job.completed","state":"pending","attempts":0,"status":null,"error":null,"created_at":`+
		moment+`,"next_at":`+moment+`,"delivered_at":null}]}`), &want); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
	schema := []string{"paths", "/v1/jobs/{id}/webhooks", "get", "responses", "200", "content", "application/json", "schema"}
	if err := doc.check(a.body, schema...); err != nil {
		t.Error(err)
	}
	if a := b.call("GET", "/v1/jobs/"+bare.ID+"/webhooks", ""); a.body != `{"items":[]}`+"\n" {
		t.Errorf("without a webhook: %d %q", a.status, a.body)
	}
	foreign := b.add("b", crawl.Completed)
	b.call("GET", "/v1/jobs/"+foreign.ID+"/webhooks", "").wantProblem(t, 404, crawl.CodeNotFound)
	b.call("GET", "/v1/jobs/x/webhooks", "").wantProblem(t, 404, crawl.CodeNotFound)
	b.call("GET", "/v1/jobs/"+job.ID+"/webhooks?limit=1", "").wantProblem(t, 422, crawl.CodeInvalid)
}

// What is posted to a receiver is what the document says is.
func TestEventInTheDocument(t *testing.T) {
	t.Parallel()
	doc := openAPI(t, newBench(t))
	schema := []string{"webhooks", "job-event", "post", "requestBody", "content", "application/json", "schema"}
	at := time.Date(2026, 5, 6, 7, 8, 9, 0, time.UTC)
	for _, j := range []crawl.Job{
		{ID: "j", State: crawl.Running, Total: 3, Queued: 3, CreatedAt: at, StartedAt: at},
		{
			ID: "j", State: crawl.Cancelled, StopReason: crawl.StopCancelled, Error: "x", Total: 3, Cancelled: 3, CreatedAt: at,
			StartedAt: at, EndedAt: at, ExpiresAt: at, Tags: []string{"x"},
		},
	} {
		for _, e := range crawl.EventTypes {
			text, err := json.Marshal(crawl.NewEvent(e, at, &j))
			if err != nil {
				t.Fatal(err)
			}
			if err := doc.check(string(text), schema...); err != nil {
				t.Errorf("%v in %s", err, text)
			}
		}
	}
	// The fields of the snapshot are those of the status, with the same types.
	event, _ := doc.at("components", "schemas", "EventData", "properties").(map[string]any)
	status, _ := doc.at("components", "schemas", "Status", "properties").(map[string]any)
	for _, name := range slices.Sorted(maps.Keys(event)) {
		of, _ := status[name].(map[string]any)
		as, _ := event[name].(map[string]any)
		if d := cmp.Diff(of["type"], as["type"]); of == nil || d != "" {
			t.Errorf("%s: -status +event: %s", name, d)
		}
	}
	if len(event) < 15 {
		t.Errorf("only %d properties", len(event))
	}
}
