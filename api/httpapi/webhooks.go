package httpapi

import (
	"context"
	"net/http"
	"reflect"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"example.com/trawl/pkg/crawl"
	"example.com/trawl/pkg/store"
)

// delivery is one event of a job, and what became of it.
type delivery struct {
	EventID     string           `json:"event_id" doc:"What the header webhook-id says, at each try."`
	Type        crawl.EventType  `json:"type" enum:"job.running,job.completed,job.completed_with_errors,job.failed,job.cancelled"`
	State       store.EventState `json:"state" enum:"pending,delivered,failed" doc:"failed: given up, after 8 tries in some four hours, after a 410, or because the job would be forgotten before the next try."`
	Attempts    int              `json:"attempts" doc:"Tries so far, one that is under way included."`
	Status      *int             `json:"status" doc:"HTTP status of the last answer; null without one."`
	Error       *string          `json:"error" doc:"For a person: why the last try failed; null when none did, and once it was delivered."`
	CreatedAt   string           `json:"created_at" format:"date-time" doc:"When it happened."`
	NextAt      *string          `json:"next_at" format:"date-time" doc:"When it is tried next; null when it is settled, under way, or waits for the event before it."`
	DeliveredAt *string          `json:"delivered_at" format:"date-time"`
}

func deliveryOf(e *store.WebhookEvent) delivery {
	return delivery{
		EventID: e.ID, Type: e.Type, State: e.State, Attempts: e.Attempts, Status: unlessZero(e.Status),
		Error: unlessZero(e.Error), CreatedAt: timestamp(e.At), NextAt: timeUnlessZero(e.NextAt),
		DeliveredAt: timeUnlessZero(e.DeliveredAt),
	}
}

// deliveries is a whole list: a job has no more events than it has states.
type deliveries struct {
	Items []delivery `json:"items" nullable:"false" doc:"In the order in which they happened, and are delivered; empty without a webhook."`
}

type webhooksOutput struct {
	Body deliveries
}

func (s *Server) webhooks(ctx context.Context, x *exchange, in *jobInput) (*webhooksOutput, error) {
	ref, err := x.ref(in.ID)
	if err != nil {
		return nil, err
	}
	events, err := s.jobs.WebhookEvents(ctx, ref)
	if err != nil {
		return nil, err
	}
	out := &webhooksOutput{Body: deliveries{Items: make([]delivery, len(events))}}
	for i := range events {
		out.Body.Items[i] = deliveryOf(&events[i])
	}
	return out, nil
}

// WebhookEvents bounds the call of the store, see [promptJobs].
func (p promptJobs) WebhookEvents(ctx context.Context, job crawl.JobRef) ([]store.WebhookEvent, error) {
	return prompt(ctx, func(ctx context.Context) ([]store.WebhookEvent, error) { return p.Jobs.WebhookEvents(ctx, job) })
}

// event is crawl.Event with what the document says of it: the conversion between the two
// compiles only while they are the same.
type event struct {
	Type      crawl.EventType `json:"type" enum:"job.running,job.completed,job.completed_with_errors,job.failed,job.cancelled"`
	Timestamp string          `json:"timestamp" format:"date-time" doc:"When it happened; each try says the same."`
	Data      crawl.EventData `json:"data" doc:"The job at that time, with the fields of its status."`
}

var _ = event(crawl.Event{})

// describeWebhook completes the schema of what a submission says of its webhook, whose type
// has no texts since it is the domain's.
func describeWebhook(r huma.Registry) {
	s := r.SchemaFromRef(r.Schema(reflect.TypeFor[crawl.Webhook](), true, "").Ref)
	s.AdditionalProperties = false
	s.Required = []string{"url"}
	most, events := crawl.MaxWebhookURL, len(crawl.EventTypes)
	url := s.Properties["url"]
	url.MaxLength = &most
	url.Description = "Where events are posted to: http or https, without user name and fragment. It need not be one of " +
		"the sources that may be crawled; an address that is not public is refused when it is called."
	url.Examples = []any{"https://receiver.example.com/hooks/trawl"}
	list := s.Properties["events"]
	list.MaxItems = &events
	list.Nullable = false
	list.Description = "Which events are sent. Default: each end of a job, so all but job.running."
	list.Items = &huma.Schema{Type: huma.TypeString}
	for _, e := range crawl.EventTypes {
		list.Items.Enum = append(list.Items.Enum, string(e))
	}
	s.Properties["secret"].Description = "Signs what is sent, as Standard Webhooks says: whsec_ and the base64 of 24 to " +
		"64 random bytes. Without one nothing is signed, and a receiver cannot know who sent it. A status shows ***."
}

// webhookDocs describes what is sent to a webhook.
func webhookDocs(schemas huma.Registry) map[string]*huma.PathItem {
	text := func(name, doc string) *huma.Param {
		return &huma.Param{
			Name: name, In: "header", Description: doc, Required: name != "webhook-signature",
			Schema: &huma.Schema{Type: huma.TypeString},
		}
	}
	body := requestBody(schemas, reflect.TypeFor[event](), nil)
	for name, p := range schemas.SchemaFromRef("#/components/schemas/EventData").Properties {
		if strings.HasSuffix(name, "_at") {
			p.Format = "date-time"
		}
		p.Nullable = p.Nullable && name != "tags"
	}
	return map[string]*huma.PathItem{"job-event": {Post: &huma.Operation{
		OperationID: "job-event", Summary: "An event of a job, sent to its webhook", Tags: []string{"webhooks"},
		Description: "At least once, the events of a job in their order. Only a 2xx within 15 s is a delivery. " +
			"Redirects are not followed. Other answers are tried again, 8 times in all within some four hours and not beyond " +
			"the retention of the job; Retry-After counts up to two hours, and 410 ends the tries.",
		Parameters: []*huma.Param{
			text("webhook-id", "Names the event, the same at each try: drop what you have seen."),
			text("webhook-timestamp", "When this try was made, in seconds since 1970. Refuse what is older than five minutes."),
			text("webhook-signature",
				"v1, and the base64 of the HMAC-SHA256 of webhook-id.webhook-timestamp.body; with a secret only."),
		},
		RequestBody: body,
		Responses:   map[string]*huma.Response{"2XX": {Description: http.StatusText(http.StatusOK)}},
	}}}
}
