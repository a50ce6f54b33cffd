package proxies

import (
	"bufio"
	"bytes"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"gotest.tools/v3/assert"
)

// lenient is a proxy that believes everything that looks like a length, and passes
// what it was sent on as it is. The real ones are wiser, most of the time.
type lenient struct {
	broker string
	mu     sync.Mutex
	conn   net.Conn // to the broker, one for all clients
	reader *bufio.Reader
	passed int
}

func (l *lenient) serve(client net.Conn) {
	defer client.Close()
	_ = client.SetDeadline(time.Now().Add(time.Second))
	reader := bufio.NewReader(client)
	for {
		var head bytes.Buffer
		for !bytes.HasSuffix(head.Bytes(), []byte("\r\n\r\n")) {
			c, err := reader.ReadByte()
			if err != nil || head.Len() > 32<<10 {
				return
			}
			head.WriteByte(c)
		}
		body := make([]byte, believedLength(head.String()))
		if _, err := io.ReadFull(reader, body); err != nil {
			return
		}
		first, rest, _ := strings.Cut(head.String(), "\r\n")
		answer, closed := l.pass(first+"\r\nX-Request-Id: "+stamp, rest, body)
		if _, err := client.Write(answer); err != nil || closed || len(answer) == 0 {
			return
		}
	}
}

// believedLength is the last number in a line that looks like a length.
func believedLength(head string) int {
	length := 0
	for _, line := range strings.FieldsFunc(head, func(r rune) bool { return r == '\r' || r == '\n' }) {
		name, value, _ := strings.Cut(strings.ToLower(line), ":")
		if strings.Trim(name, " \t\v\x00;") == "content-length" {
			digits := strings.TrimFunc(value, func(r rune) bool { return r < '0' || r > '9' })
			if n, err := strconv.Atoi(digits); err == nil {
				length = n
			}
		}
	}
	return min(length, 64<<10)
}

func (l *lenient) pass(first, rest string, body []byte) (answer []byte, closed bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for range 3 { // the connection may have been closed since
		if l.conn == nil {
			conn, err := net.Dial("tcp", l.broker)
			if err != nil {
				return nil, true
			}
			l.conn, l.reader = conn, bufio.NewReader(conn)
		}
		l.passed++
		_ = l.conn.SetDeadline(time.Now().Add(10 * time.Second))
		_, _ = io.WriteString(l.conn, first+strconv.Itoa(l.passed)+"\r\n"+rest+string(body))
		resp, err := http.ReadResponse(l.reader, &http.Request{Method: strings.Fields(first + " GET")[0]})
		if err != nil {
			_ = l.conn.Close()
			l.conn = nil
			continue
		}
		var out bytes.Buffer
		closed = resp.Close
		err = resp.Write(&out)
		_ = resp.Body.Close()
		if closed || err != nil {
			_ = l.conn.Close()
			l.conn = nil
		}
		return out.Bytes(), closed || err != nil
	}
	return nil, true
}

// The broker does not rely on the wisdom of what stands before it.
func TestALenientProxyIsNotTheEnd(t *testing.T) {
	b := startBroker(t, "")
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	assert.NilError(t, err)
	l := &lenient{broker: strings.TrimPrefix(b.URL, "http://")}
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			serving.Go(func() { l.serve(conn) })
		}
	})
	t.Cleanup(func() {
		_ = listener.Close()
		serving.Wait()
		if l.conn != nil {
			_ = l.conn.Close()
		}
	})
	direct := len(requestLine.FindAllString(b.Log(), -1))
	v := newVictim(listener.Addr().String())
	v.client.Transport = &http.Transport{DisableKeepAlives: true}
	for _, line := range lengths {
		if strings.HasPrefix(line, "Expect:") || strings.HasPrefix(line, "Upgrade:") {
			continue // this proxy knows nothing of answers before the answer
		}
		for _, hidden := range []string{whole, smuggled} {
			send(v.address, request(strings.ReplaceAll(strings.ReplaceAll(line, "%[1]d", "%d"), "%d", strconv.Itoa(len(hidden)))+"\r\n", hidden))
			assert.NilError(t, v.ask(), "about %q", line)
		}
	}
	check(t, b, direct, v.sent)
}
