package group

import "time"

// Publish makes the next version of the content, serves, saves and sends it. The errors
// are those of [Node.Next].
func (n *Node) Publish(now time.Duration, content []byte, reapply bool) (*Plan, error) {
	version, err := n.Next(now, reapply)
	if err != nil {
		return nil, err
	}
	return n.publish(version, NewContent([]Part{NewPart(content)})), nil
}
