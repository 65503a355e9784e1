package admin

import "net/http"

// Codes are all codes, in the order of the reference page.
var Codes = codes

// Handler returns the interface without a server around it.
func (s *Server) Handler() http.Handler { return s.handler }
