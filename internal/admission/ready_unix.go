//go:build unix

package admission

import (
	"errors"
	"io"
	"net"
	"os"
	"syscall"

	"google.golang.org/grpc/mem"
)

// readyReader reads from a socket into buffers that are taken once there is
// something to read, so that connections with nothing to say hold none.
type readyReader struct {
	raw syscall.RawConn
	try func(fd uintptr) (done bool)

	size   int
	pool   mem.BufferPool
	buffer *[]byte
	n      int
	err    error
}

// newReadyReader returns nil where the socket can't be reached.
func newReadyReader(c *net.TCPConn) *readyReader {
	raw, err := c.SyscallConn()
	if err != nil {
		return nil
	}
	r := &readyReader{raw: raw}
	r.try = r.attempt
	return r
}

func (r *readyReader) attempt(fd uintptr) (done bool) {
	r.buffer, r.err = r.pool.Get(r.size), syscall.EINTR
	for errors.Is(r.err, syscall.EINTR) {
		r.n, r.err = syscall.Read(int(fd), *r.buffer)
	}
	if r.err != nil || r.n == 0 {
		r.pool.Put(r.buffer)
		r.buffer, r.n = nil, 0
	}
	return !errors.Is(r.err, syscall.EAGAIN)
}

// read waits for data and reads it. The buffer is nil where there is an error.
func (r *readyReader) read(size int, pool mem.BufferPool) (*[]byte, int, error) {
	r.size, r.pool = size, pool
	err := r.raw.Read(r.try)
	buffer, n := r.buffer, r.n
	switch {
	case err == nil && r.err != nil:
		err = os.NewSyscallError("read", r.err)
	case err == nil && n == 0:
		err = io.EOF
	}
	r.pool, r.buffer, r.n, r.err = nil, nil, 0, nil
	return buffer, n, err
}

// peek reads the bytes that have arrived on a connection, and leaves them there. It returns 0 if
// none has, or if the socket can't be reached.
func peek(c net.Conn, into []byte) (n int) {
	raw, err := rawConn(c)
	if err != nil {
		return 0
	}
	_ = raw.Read(func(fd uintptr) bool {
		n, _, err = syscall.Recvfrom(int(fd), into, syscall.MSG_PEEK)
		return true // whether or not there is something
	})
	if err != nil {
		return 0
	}
	return n
}

// OpenFiles returns how many files the process may have open; 0 where that is
// unknown or unlimited.
func OpenFiles() int {
	var l syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &l); err != nil || l.Cur > 1<<30 {
		return 0
	}
	return int(l.Cur)
}
