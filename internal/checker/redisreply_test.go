package checker

import (
	"bufio"
	"strings"
	"testing"
)

func TestReadRedisReply(t *testing.T) {
	for name, test := range map[string]struct {
		in   string
		want redisReply
		err  string // a part of it; empty = none
	}{
		"simple string":  {in: "+PONG\r\n", want: redisReply{'+', "PONG"}},
		"error":          {in: "-NOAUTH Authentication required.\r\n", want: redisReply{'-', "NOAUTH Authentication required."}},
		"integer":        {in: ":1\r\n", want: redisReply{':', "1"}},
		"not an integer": {in: ":one\r\n", err: "want a simple string"},
		"bulk string":    {in: "$4\r\nPONG\r\n", err: "want a simple string"},
		"another server": {in: "HTTP/1.1 400 Bad Request\r\n", err: "want a simple string"},
		"empty line":     {in: "\r\n", err: "not of the Redis protocol"},
		"bare newline":   {in: "+PONG\n", err: "not of the Redis protocol"},
		"nothing":        {in: "", err: "EOF"},
		"half a line":    {in: "+PO", err: "EOF"},
		"endless line":   {in: "+" + strings.Repeat("a", 2*mostRedisReply) + "\r\n", err: "buffer full"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := readRedisReply(bufio.NewReaderSize(strings.NewReader(test.in), mostRedisReply))
			if got != test.want || (err == nil) != (test.err == "") || err != nil && !strings.Contains(err.Error(), test.err) {
				t.Errorf("got %v, %v; want %v, an error with %q", got, err, test.want, test.err)
			}
		})
	}
}

// FuzzRedisReply: whatever an endpoint answers, the reply is one line of a known
// kind, or an error.
func FuzzRedisReply(f *testing.F) {
	for _, s := range []string{"+PONG\r\n", "-ERR\r\n", ":0\r\n", "$-1\r\n", "+\r\n", "*1\r\n"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		reply, err := readRedisReply(bufio.NewReaderSize(strings.NewReader(s), mostRedisReply))
		if err == nil && (!strings.ContainsRune("+-:", rune(reply.kind)) || strings.Contains(reply.text, "\n") || !strings.HasPrefix(s, string(reply.kind)+reply.text+"\r\n")) {
			t.Errorf("%q was read as %q", s, reply)
		}
	})
}
