package providers

import (
	"time"

	"github.com/isobar-xds/isobar/internal/admin"
	"github.com/isobar-xds/isobar/internal/config"
	"github.com/isobar-xds/isobar/internal/discovery/xdsclient"
)

// xdsConfig translates; nil stays nil.
func xdsConfig(c *config.XDSDiscovery) *xdsclient.Config {
	if c == nil {
		return nil
	}
	out := &xdsclient.Config{
		Server: c.Server, ADS: c.ADS, DefaultLocality: c.DefaultLocality, EmptyHold: c.EmptyHold,
		Node:     xdsclient.Node{ID: c.Node.ID, Cluster: c.Node.Cluster, Locality: c.Node.Locality},
		Services: make([]xdsclient.Service, len(c.Services)),
	}
	if t := c.TLS; t != nil {
		out.TLS = &xdsclient.TLS{CA: t.CA, Cert: t.Cert, Key: t.Key, ServerName: t.ServerName}
	}
	for i := range c.Services {
		out.Services[i] = xdsclient.Service{EDSName: c.Services[i].EDSName, Settings: c.Services[i].Service, Ceiling: c.Services[i].Ceiling}
	}
	return out
}

// xdsGrace is for how long the other control plane may be away without a
// word: it restarts, too.
const xdsGrace = time.Minute

// xdsTroubles tells operators what is wrong with the other control plane
// and what it lists.
func xdsTroubles(client *xdsclient.Client) []admin.Attention {
	up, ok := client.Status()
	if !ok {
		return nil
	}
	var out []admin.Attention
	if !up.Connected && time.Since(up.Since) > xdsGrace {
		since := ""
		if !up.Since.IsZero() {
			since = " since " + up.Since.UTC().Format(time.RFC3339)
		}
		out = append(out, admin.NewAttention(admin.DiscoveryLost,
			"the control plane %s has listed no endpoints%s, so Isobar keeps those listed last: %s", up.Server, since, up.Failure))
	}
	lost := len(out) > 0
	for i := range up.Services {
		svc := &up.Services[i]
		note := func(code admin.Code, text string) {
			out = append(out, admin.NewAttention(code, "%s: %s", svc.Name, text).Of(svc.Name))
		}
		switch svc.State {
		case xdsclient.Waiting:
			if up.Connected || lost {
				note(admin.DiscoveryWaiting, "its clients get no endpoints yet: the other control plane has not listed "+svc.EDSName)
			}
		case xdsclient.Held:
			note(admin.DiscoveryHeld, "the other control plane no longer lists endpoints; Isobar keeps the previous ones for now")
		case xdsclient.Refused:
			note(admin.DiscoveryRefused, "Isobar refuses the endpoints from the other control plane: "+svc.Refused)
		case xdsclient.Current, xdsclient.Kept, xdsclient.Empty:
		}
	}
	return out
}
