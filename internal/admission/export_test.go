package admission

import "net"

// Follow counts the messages that a client of gRPC sends over a connection. The server has to use
// the returned connection, from its first byte on. See [Messages.Over].
func (m *Messages) Follow(c net.Conn) net.Conn {
	followed, _ := m.followed(c)
	return followed
}
