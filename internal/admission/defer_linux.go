package admission

import (
	"net"
	"syscall"
)

// deferSeconds is how long the system keeps connections on which nothing has arrived.
const deferSeconds = 10

// deferAccept has the system keep a new connection of a listener until its client has sent
// something. Connections without data then take no files, and the server can read the request as
// soon as it accepts the connection. It is for listeners of protocols in which the client sends
// first.
func deferAccept(l net.Listener) {
	tcp, ok := l.(*net.TCPListener)
	if !ok {
		return
	}
	raw, err := tcp.SyscallConn()
	if err != nil {
		return // connections come at once then, and the listener works nevertheless
	}
	_ = raw.Control(func(fd uintptr) {
		_ = syscall.SetsockoptInt(int(fd), syscall.IPPROTO_TCP, syscall.TCP_DEFER_ACCEPT, deferSeconds)
	})
}
