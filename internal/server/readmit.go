package server

import (
	"reflect"

	"github.com/isobar-xds/isobar/internal/config"
	"github.com/isobar-xds/isobar/internal/identity"
)

// enforce puts a configuration in force, for streams that are open, too: where it
// takes a role or a locality from somebody, it is mostly because a key was lost,
// and a stream may stay open for weeks.
func (s *Server) enforce(next *config.Config) {
	before := s.policy()
	s.current.Store(next)
	if reflect.DeepEqual(before, s.policy()) {
		return
	}
	s.xds.Readmit()
	s.lrs.Readmit()
	s.hds.Readmit()
}

// RecvMsg implements grpc.ServerStream. On a stream of operators each message is a
// request of its own, and asks for the role anew.
func (s *enteredStream) RecvMsg(m any) error {
	if err := s.direct.RecvMsg(m); err != nil || s.role != identity.RoleAdmin {
		return err
	}
	if err := s.server.policy().CheckRole(s.visitor.peer, identity.RoleAdmin); err != nil {
		return s.server.refuseIdentity(err, identity.RoleAdmin, s.visitor.address, "")
	}
	return nil
}
