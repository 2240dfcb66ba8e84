package client

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"time"
)

// duration is a time.Duration as the service spells it: "1h0m0s".
type duration time.Duration

// MarshalText implements encoding.TextMarshaler.
func (d duration) MarshalText() ([]byte, error) { return []byte(time.Duration(d).String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (d *duration) UnmarshalText(text []byte) error {
	v, err := time.ParseDuration(string(text))
	if err != nil {
		return fmt.Errorf(`%q is no duration, such as "1h30m"`, printable(string(text)))
	}
	*d = duration(v)
	return nil
}

type plainSpec Spec

// wireSpec is a Spec on the wire. Its own fields hide those of the same name in plainSpec.
type wireSpec struct {
	plainSpec

	TimeLimit duration `json:"time_limit,omitzero"`
	Delay     duration `json:"delay,omitzero"`
	Retention duration `json:"retention,omitzero"`
}

// MarshalJSON implements json.Marshaler: durations are strings such as "1h0m0s", and
// what is zero is left out.
func (s Spec) MarshalJSON() ([]byte, error) {
	return json.Marshal(wireSpec{
		plainSpec: plainSpec(s),
		TimeLimit: duration(s.TimeLimit), Delay: duration(s.Delay), Retention: duration(s.Retention),
	})
}

// UnmarshalJSON implements json.Unmarshaler. What this version does not know is ignored.
func (s *Spec) UnmarshalJSON(data []byte) error {
	var w wireSpec
	if err := json.Unmarshal(data, &w); err != nil {
		return err
	}
	*s = Spec(w.plainSpec)
	s.TimeLimit, s.Delay, s.Retention = time.Duration(w.TimeLimit), time.Duration(w.Delay), time.Duration(w.Retention)
	return nil
}

// UnmarshalJSON implements json.Unmarshaler. It keeps the whole in Raw.
func (j *Job) UnmarshalJSON(data []byte) error {
	type plain Job
	p, err := decodeFresh[plain](data)
	*j = Job(p)
	j.Raw = bytes.Clone(data)
	return err
}

// UnmarshalJSON implements json.Unmarshaler. It keeps the whole in Raw.
func (e *PageError) UnmarshalJSON(data []byte) error {
	type plain PageError
	p, err := decodeFresh[plain](data)
	*e = PageError(p)
	e.Raw = bytes.Clone(data)
	return err
}

// decodeFresh decodes into a new value, so that nothing of an older one is left where
// the text has null.
func decodeFresh[T any](data []byte) (T, error) {
	var v T
	err := json.Unmarshal(data, &v)
	return v, err
}

// UnmarshalJSON implements json.Unmarshaler. Without items it is no page: any JSON object
// would pass for an empty one otherwise, and a walk would end as if all was read.
func (p *Page[T]) UnmarshalJSON(data []byte) error {
	var w struct {
		Items      json.RawMessage `json:"items"`
		NextCursor string          `json:"next_cursor"`
		HasMore    bool            `json:"has_more"`
	}
	if err := json.Unmarshal(data, &w); err != nil {
		return err
	}
	if w.Items == nil {
		return errors.New("it has no items")
	}
	*p = Page[T]{NextCursor: w.NextCursor, HasMore: w.HasMore}
	return json.Unmarshal(w.Items, &p.Items)
}
