package interop

import (
	"errors"
	"fmt"
	"strings"

	"github.com/isobar-xds/isobar/internal/admin"
)

// nack: a refusal shows in /v1/clients with the client's words, calls go on by
// what it had, nothing is sent again and again, and the next good assignment is
// accepted.
func (s *site) nack() {
	t := s.t
	r := startRelay(t, s.xds)
	c := s.kind.start(t, r.address, "pool")
	c.ready(t)
	r.setSpoil(true)
	s.isobar.health("pool", s.backends["two"].address, "draining")
	refusal := s.awaitNACK(c)
	_, sent, words := r.snapshot()
	if len(words) == 0 || !strings.HasPrefix(words[0], strings.TrimSuffix(refusal.Text, "...")) && refusal.Text != words[0] {
		t.Errorf("the client said %q, /v1/clients says %q", words, refusal.Text)
	}
	if o := c.call(t, 3*callRate); len(o.Failed) > 0 || len(o.Served) != 3 {
		t.Errorf("after a refusal it does not go on by what it had: %+v", o)
	}
	if _, now, _ := r.snapshot(); now > sent+3 { // three seconds, three ticks
		t.Errorf("%d assignments sent after the refusal", now-sent)
	}
	r.setSpoil(false)
	s.isobar.health("pool", s.backends["two"].address, "")
	s.isobar.health("pool", s.backends["three"].address, "draining")
	await(t, "calls by the next good assignment", func() error {
		if o := c.call(t, 60); len(o.Failed) > 0 || o.Served["three"] > 0 {
			return fmt.Errorf("%+v", o)
		}
		client, err := s.client(c.id)
		if err == nil && !client.InSync {
			err = fmt.Errorf("not in sync: %+v", client)
		}
		return err
	})
	s.isobar.health("pool", s.backends["three"].address, "")
}

// awaitNACK waits for a refusal of a client that makes calls meanwhile: C-core
// looks at its streams rarely when it has nothing else to do.
func (s *site) awaitNACK(c *client) admin.NACK {
	t := s.t
	t.Helper()
	var found admin.NACK
	await(t, "refusal in /v1/clients", func() error {
		c.call(t, 5)
		client, err := s.client(c.id)
		if err != nil {
			return err
		}
		if client.Types["eds"].NACK == nil {
			return fmt.Errorf("%+v", client.Types)
		}
		found = *client.Types["eds"].NACK
		if found.Text == "" {
			return errors.New("a refusal without a text")
		}
		return nil
	})
	return found
}
