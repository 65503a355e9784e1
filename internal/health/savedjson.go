package health

import (
	"github.com/isobar-xds/isobar/internal/appendjson"
)

// AppendJSON appends the state as JSON, as [json.Marshal] writes it: with many endpoints, which have
// votes of several checkers each, that takes long. TestAppendedJSON compares both.
func (s *SavedMonitor) AppendJSON(data []byte) ([]byte, error) {
	b := appendjson.New(data)
	b.Open('{')
	b.Key("placement")
	b.Open('{')
	b.Key("designations")
	appendjson.Array(b, s.Placement.Designations, func(b *appendjson.Buffer, d *Designation) {
		b.Open('{')
		b.Key("checker")
		b.String(d.Checker)
		b.Key("endpoints")
		appendjson.Array(b, d.Endpoints, func(b *appendjson.Buffer, k *Key) {
			b.Open('{')
			appendKey(b, k)
			b.Close('}')
		})
		b.Close('}')
	})
	if len(s.Placement.Shortfalls) > 0 {
		b.Key("shortfalls")
		b.Any(s.Placement.Shortfalls)
	}
	b.Close('}')
	if len(s.Checkers) > 0 {
		b.Key("checkers")
		b.Any(s.Checkers)
	}
	b.Key("book")
	b.Open('{')
	appendjson.OptionalArray(b, "endpoints", s.Verdicts.Endpoints, appendSavedEndpoint)
	appendjson.OptionalArray(b, "served", s.Verdicts.Served, func(b *appendjson.Buffer, at *Served) {
		b.Open('{')
		b.Key("service")
		b.String(at.Service)
		b.Key("locality")
		b.String(at.Locality.String())
		b.Close('}')
	})
	b.Close('}')
	if len(s.Drains) > 0 {
		b.Key("drains")
		b.Any(s.Drains)
	}
	if len(s.Suspects) > 0 {
		b.Key("suspects")
		b.Any(s.Suspects)
	}
	b.Close('}')
	return b.Bytes()
}

func appendKey(b *appendjson.Buffer, k *Key) {
	b.Key("service")
	b.String(k.Service)
	b.Key("address")
	b.String(k.Address)
}

func appendSavedEndpoint(b *appendjson.Buffer, e *SavedEndpoint) {
	b.Open('{')
	appendKey(b, &e.Key)
	b.Key("status")
	b.String(e.Status.String())
	b.OptionalTime("since", e.Since)
	b.OptionalTime("confirmed", e.Confirmed)
	b.OptionalTime("waiting", e.Waiting)
	b.OptionalBool("added", e.Added)
	b.OptionalBool("proven", e.Proven)
	b.OptionalBool("opposed", e.Opposed)
	appendjson.OptionalArray(b, "votes", e.Votes, func(b *appendjson.Buffer, v *SavedVote) {
		b.Open('{')
		b.Key("checker")
		b.String(v.Checker)
		b.Key("status")
		b.String(v.Status.String())
		b.OptionalTime("since", v.Since)
		b.OptionalTime("heard", v.Heard)
		b.Close('}')
	})
	b.Close('}')
}
