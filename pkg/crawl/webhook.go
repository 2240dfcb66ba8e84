package crawl

import (
	"encoding/base64"
	"fmt"
	"net/url"
	"slices"
	"strings"
)

// Bounds of a [Webhook].
const (
	// MaxWebhookURL bounds a receiver's URL, in bytes: as given and as it is called.
	MaxWebhookURL = 2048
	// MinSecretBytes and MaxSecretBytes bound what is behind [SecretPrefix], decoded.
	// Source: Standard Webhooks 1.0, "Signature scheme".
	MinSecretBytes = 24
	MaxSecretBytes = 64
)

// SecretPrefix begins every secret of a webhook; base64 (RFC 4648 section 4) follows.
const SecretPrefix = "whsec_"

// EventType names what a webhook tells of.
type EventType string

// The events of a job. It has at most two: that it runs, and its one end.
const (
	EventRunning             EventType = "job.running" // a worker began it
	EventCompleted           EventType = "job.completed"
	EventCompletedWithErrors EventType = "job.completed_with_errors"
	EventFailed              EventType = "job.failed"
	EventCancelled           EventType = "job.cancelled"
)

// EventTypes are all events that a webhook can ask for, in the order of a job's life.
var EventTypes = []EventType{
	EventRunning, EventCompleted, EventCompletedWithErrors, EventFailed, EventCancelled,
}

// EndEvents are the events of a webhook that asks for none: each end that a job can have.
var EndEvents = EventTypes[1:]

// Webhook asks for events of a job to be sent to a receiver of the caller's own. It is not
// bound by the sources that may be crawled; the dial guard of the worker bounds it.
type Webhook struct {
	// URL is where events are posted to: http or https, at most [MaxWebhookURL] bytes,
	// without userinfo and fragment.
	URL string `json:"url,omitempty"`
	// Events are those that are sent. Default: [EndEvents].
	Events []EventType `json:"events,omitempty"`
	// Secret signs what is sent, see [Secret]. Without one nothing is signed.
	Secret Secret `json:"secret,omitempty"`
}

// Masked returns a copy of w that may be shown; nil for nil.
func (w *Webhook) Masked() *Webhook {
	if w == nil {
		return nil
	}
	masked := *w
	if w.Secret != "" {
		masked.Secret = MaskedHeader
	}
	return &masked
}

// Secret is the key that signs the deliveries of a webhook, [SecretPrefix] and the base64
// of [MinSecretBytes] to [MaxSecretBytes] bytes. Formatting masks it, so that a log line
// about a spec or a plan does not give it away; JSON has it.
type Secret string

// String implements [fmt.Stringer] without the secret.
func (s Secret) String() string {
	if s == "" {
		return ""
	}
	return MaskedHeader
}

// GoString implements [fmt.GoStringer] without the secret.
func (s Secret) GoString() string { return fmt.Sprintf("%q", s.String()) }

// checkWebhook checks a webhook, and puts it into the plan as it is carried out. No message
// repeats the URL or the secret.
func (c *checked) checkWebhook(w *Webhook) {
	if w == nil {
		return
	}
	plan := Webhook{URL: c.webhookURL(w.URL), Events: w.Events, Secret: w.Secret}
	c.checkEvents(w.Events)
	c.checkSecret(w.Secret)
	if len(plan.Events) == 0 {
		plan.Events = EndEvents
	}
	c.plan.Webhook = &plan
}

func (c *checked) webhookURL(s string) string {
	const field = "webhook.url"
	u, userinfo, err := parse(URL{}, s)
	switch {
	case s == "":
		c.fault(field, "required", "Say where events are to be posted.")
	case len(s) > MaxWebhookURL || len(u.String()) > MaxWebhookURL:
		c.fault(field, "max", "The URL of a webhook has at most %d bytes.", MaxWebhookURL)
	case strings.ContainsFunc(trimControl(s), isControl):
		c.fault(field, "control_character", "A URL holds no tabs, line breaks or other control characters. Remove them.")
	case userinfo:
		c.fault(field, "userinfo",
			"A URL holds no user name or password. Leave out what stands before the @; secret proves who sends.")
	case err != nil:
		c.fault(field, string(RefusedReasonOf(err)), "%s", sentence(messageOf(err)))
	case strings.Contains(s, "#"):
		c.fault(field, "fragment", "A fragment is never sent. Leave out the # and what is behind it.")
	case !requestable(u):
		c.fault(field, string(RefusedInvalid),
			"Programs read this URL in different ways. Escape what is special in it: %%25 stands for a percent sign.")
	}
	return u.String()
}

// requestable reports whether net/url, by which it is posted to, reads u as the WHATWG
// standard does. It is stricter about percent signs: what it refuses could never be delivered.
func requestable(u URL) bool {
	r, err := url.Parse(u.String())
	return err == nil && r.Host == u.Host()
}

func (c *checked) checkEvents(events []EventType) {
	if len(events) > len(EventTypes) {
		c.fault("webhook.events", "max", "Give each event once: there are %d.", len(EventTypes))
		return
	}
	for i, e := range events {
		field := fmt.Sprintf("webhook.events[%d]", i)
		switch {
		case !slices.Contains(EventTypes, e):
			c.fault(field, "enum", "Give some of %s, not %q.", eventNames(), clip(string(e)))
		case slices.Contains(events[:i], e):
			c.fault(field, "duplicate", "The event %s is given twice. Give it once.", e)
		}
	}
}

func eventNames() string {
	names := make([]string, len(EventTypes))
	for i, e := range EventTypes {
		names[i] = string(e)
	}
	return strings.Join(names, ", ")
}

func (c *checked) checkSecret(s Secret) {
	const field = "webhook.secret"
	if s == "" {
		return
	}
	if s == MaskedHeader {
		c.fault(field, "masked",
			"%s stands for a secret that is not shown, as in the status of a job. Give the secret itself.", MaskedHeader)
		return
	}
	text, ok := strings.CutPrefix(string(s), SecretPrefix)
	// The length first: a decoder allocates. It also skips line breaks, hence the alphabet.
	key, err := []byte(nil), error(nil)
	if ok = ok && len(text) <= base64.StdEncoding.EncodedLen(MaxSecretBytes) && !strings.ContainsAny(text, "\r\n"); ok {
		key, err = base64.StdEncoding.Strict().DecodeString(text)
	}
	if !ok || err != nil || len(key) < MinSecretBytes || len(key) > MaxSecretBytes {
		c.fault(field, "pattern", "A secret is %s and the base64 of %d to %d random bytes, with its padding.",
			SecretPrefix, MinSecretBytes, MaxSecretBytes)
	}
}
