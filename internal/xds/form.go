package xds

import (
	"google.golang.org/grpc/mem"

	"github.com/isobar-xds/isobar/internal/rpc"
	"github.com/isobar-xds/isobar/internal/xds/resource"
)

// tails are the ends of responses, encoded once.
type tails [2][rpc.Forms][resource.Kinds]mem.Buffer // delta last

func newTails(identifier string) tails {
	var t tails
	for delta := range t {
		for f := range t[delta] {
			name := identifier
			if rpc.Form(f) == rpc.V2017 {
				name = "" // there was no such field
			}
			for k := range t[delta][f] {
				t[delta][f][k] = mem.SliceBuffer(resource.ResponseTail(resource.Kind(k).URLIn(rpc.Form(f)), name, delta == 1))
			}
		}
	}
	return t
}

func (t *tails) of(delta bool, form rpc.Form, kind resource.Kind) mem.Buffer {
	if delta {
		return t[1][form][kind]
	}
	return t[0][form][kind]
}

// as tells how the client wants resources of a kind whose type URL is of a form.
// The URLs of 2017 are those of v2.
func (s *stream) as(form rpc.Form, kind resource.Kind) rpc.As {
	as := rpc.As{Form: form}
	if kind == resource.Cluster {
		as.GRPC, as.OldEnvoy = s.node.IsGRPC(), s.node.RefusesWRRLocality()
	}
	switch {
	case form == rpc.V2 && s.form == rpc.V2017:
		as.Form = rpc.V2017
	case form == rpc.V3:
		as.TTL = s.node.TTL && (s.delta || s.node.Wrapped)
	}
	return as
}

// rejects2017 takes a request of a client of 2017 as a rejection when it shows
// another version than that of the response which it answers: there was no
// other way to say so.
func (s *stream) rejects2017(w *watch, r *resource.Request) {
	if w.as.Form == rpc.V2017 && w.unacked && w.nonce.says(r.Nonce) && r.Version != w.sent.version {
		r.Nack, r.Error = true, "rejected; clients of 2017 do not say why"
	}
}
