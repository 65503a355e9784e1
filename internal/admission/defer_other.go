//go:build !linux

package admission

import "net"

// deferAccept does nothing: connections come at once here.
func deferAccept(net.Listener) {}
