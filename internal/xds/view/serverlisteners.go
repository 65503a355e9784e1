package view

import (
	"sync"

	"github.com/isobar-xds/isobar/internal/rpc"
	"github.com/isobar-xds/isobar/internal/xds/resource"
)

// maxServerListeners bounds how many listeners of gRPC servers are kept: servers
// that listen on all addresses share a few names, and any client may make some up.
// What is beyond is encoded whenever somebody asks.
const maxServerListeners = 4096

// serverListeners holds the encoded listeners of gRPC servers. They depend on
// their names alone, and on no plan.
type serverListeners struct {
	mu   sync.Mutex
	kept map[string]*Resource
}

// get gives the listener of that name; nil when it is not that of a gRPC server.
// Servers that ask for one speak v3.
func (l *serverListeners) get(b *Builder, form rpc.APIVersion, name string) *Resource {
	said, ok := resource.ParseServerListener(name)
	if !ok || form != rpc.V3 {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if r := l.kept[name]; r != nil {
		return r
	}
	m, err := resource.ServerListenerOf(name, said)
	var r *Resource
	if err == nil {
		r, err = resource.Encode(name, resource.Listener, m)
	}
	if err != nil {
		b.refuse(resource.Listener, Refusal{Service: name, Err: err})
		return nil
	}
	b.done(resource.Listener)
	if l.kept == nil {
		l.kept = map[string]*Resource{}
	}
	if len(l.kept) < maxServerListeners {
		l.kept[name] = r
	}
	return r
}
