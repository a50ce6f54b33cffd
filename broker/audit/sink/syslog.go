package sink

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"strconv"
	"time"

	"github.com/sandbox-broker/sandbox-broker/broker/audit"
)

const (
	// priority is facility 13, log audit, with severity 6, informational.
	priority = 13*8 + 6
	// maxDatagram is the longest message that is sent as one, in bytes.
	maxDatagram = 60_000
	// sendTimeout bounds dialling, and writing what is sent at once.
	sendTimeout = 10 * time.Second
)

// Syslog sends lines as messages of RFC 5424: in datagrams over UDP, counted
// (RFC 6587) over TCP, and to a Unix socket in whichever way it takes them. Only TCP
// says whether anybody is there, and no way whether it was kept.
type Syslog struct {
	networks []string
	address  string
	header   string
	conn     net.Conn
	datagram bool
}

// NewSyslog returns a sender to unix:///path, udp://host:port or tcp://host:port.
func NewSyslog(address string) (*Syslog, error) {
	u, err := url.Parse(address)
	if err != nil {
		return nil, errors.New("the address of the syslog server is none")
	}
	host, err := os.Hostname()
	if err != nil || host == "" {
		host = "-"
	}
	s := &Syslog{networks: []string{u.Scheme}, address: u.Host, header: fmt.Sprintf(" %s sandbox-broker %d audit - ", host, os.Getpid())}
	if u.Scheme == "unix" {
		s.networks, s.address = []string{"unixgram", "unix"}, u.Path
	}
	return s, nil
}

var _ Sender = (*Syslog)(nil)

// Send implements Sender.
func (s *Syslog) Send(ctx context.Context, lines [][]byte) (err error) {
	defer func() {
		if err != nil {
			s.Close()
		}
	}()
	if err := s.dial(ctx); err != nil {
		return err
	}
	defer context.AfterFunc(ctx, func() { _ = s.conn.SetDeadline(time.Unix(1, 0)) })()
	if err := s.conn.SetWriteDeadline(time.Now().Add(sendTimeout)); err != nil {
		return err
	}
	for _, line := range lines {
		message := s.message(line)
		if s.datagram && len(message) > maxDatagram {
			message = s.message(tooLong(line))
		}
		if !s.datagram {
			message = append(strconv.AppendInt(nil, int64(len(message)), 10), append([]byte(" "), message...)...)
		}
		if _, err := s.conn.Write(message); err != nil {
			return err
		}
	}
	return nil
}

func (s *Syslog) dial(ctx context.Context) error {
	if s.conn != nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, sendTimeout)
	defer cancel()
	var problems error
	for _, network := range s.networks {
		conn, err := (&net.Dialer{}).DialContext(ctx, network, s.address)
		if err == nil {
			s.conn, s.datagram = conn, network == "udp" || network == "unixgram"
			return nil
		}
		problems = errors.Join(problems, err)
	}
	return problems
}

// message is a line with the header of RFC 5424, which has the line's own time.
func (s *Syslog) message(line []byte) []byte {
	at := "-"
	if _, after, ok := bytes.Cut(line, []byte(`"timestamp":"`)); ok {
		if text, _, ok := bytes.Cut(after, []byte(`"`)); ok {
			at = string(text)
		}
	}
	return append(fmt.Appendf(nil, "<%d>1 %s%s", priority, at, s.header), line...)
}

// tooLong stands for a line that no datagram can hold.
func tooLong(line []byte) []byte {
	parsed, err := audit.ParseLine(line)
	if err != nil {
		return []byte(`{"note":"a line that is too long for a datagram"}`)
	}
	return fmt.Appendf(nil, `{"seq":%d,"note":"the line is too long for a datagram; it is in the file","hash":"%s"}`, parsed.Seq, parsed.Hash)
}

// Close implements Sender.
func (s *Syslog) Close() {
	if s.conn != nil {
		_ = s.conn.Close()
		s.conn = nil
	}
}
