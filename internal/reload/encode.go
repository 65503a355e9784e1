package reload

import (
	"bytes"
	"encoding/json"

	"github.com/isobar-xds/isobar"
)

// Encode is [json.Marshal] of what is kept, service by service: a million endpoints take 35 MB,
// and json.Marshal would take, and keep for a while, a buffer of up to twice of that.
func (c *Configured) Encode() ([]byte, error) {
	rest := *c
	rest.Services = []isobar.Service{}
	frame, err := json.Marshal(rest)
	if err != nil {
		return nil, err
	}
	pieces := make([][]byte, len(c.Services))
	size := len(frame) + len(pieces)
	for i := range c.Services {
		if pieces[i], err = json.Marshal(&c.Services[i]); err != nil {
			return nil, err
		}
		size += len(pieces[i])
	}
	const head = `{"services":[`
	out := append(make([]byte, 0, size), head...)
	for i, p := range pieces {
		if i > 0 {
			out = append(out, ',')
		}
		out = append(out, p...)
	}
	return append(out, bytes.TrimPrefix(frame, []byte(head))...), nil
}
