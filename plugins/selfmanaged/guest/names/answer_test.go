package names_test

import (
	"net/netip"
	"testing"

	"golang.org/x/net/dns/dnsmessage"
	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"

	"github.com/sandbox-broker/sandbox-broker/plugins/selfmanaged/guest/names"
)

var address = netip.MustParseAddr("127.64.0.7")

// known has an address for one name.
func known(name string) (netip.Addr, dnsmessage.RCode) {
	if name == "a.example.com." {
		return address, dnsmessage.RCodeSuccess
	}
	return netip.Addr{}, dnsmessage.RCodeNameError
}

func question(name string, kind dnsmessage.Type) dnsmessage.Question {
	return dnsmessage.Question{Name: dnsmessage.MustNewName(name), Type: kind, Class: dnsmessage.ClassINET}
}

func packed(t testing.TB, m dnsmessage.Message) []byte {
	t.Helper()
	m.ID = 7
	text, err := m.Pack()
	assert.NilError(t, err)
	return text
}

func TestAnswers(t *testing.T) {
	a := question("a.example.com.", dnsmessage.TypeA)
	chaos := a
	chaos.Class = dnsmessage.ClassCHAOS
	var options dnsmessage.ResourceHeader
	assert.NilError(t, options.SetEDNS0(4096, dnsmessage.RCodeSuccess, false))
	for name, test := range map[string]struct {
		query     dnsmessage.Message
		code      dnsmessage.RCode
		addresses int
		silent    bool
	}{
		"a name that is known":           {query: dnsmessage.Message{Questions: []dnsmessage.Question{a}}, addresses: 1},
		"with options":                   {query: dnsmessage.Message{Questions: []dnsmessage.Question{a}, Additionals: []dnsmessage.Resource{{Header: options, Body: &dnsmessage.OPTResource{}}}}, addresses: 1},
		"its other address":              {query: dnsmessage.Message{Questions: []dnsmessage.Question{question("a.example.com.", dnsmessage.TypeAAAA)}}},
		"its text":                       {query: dnsmessage.Message{Questions: []dnsmessage.Question{question("a.example.com.", dnsmessage.TypeTXT)}}},
		"all of it":                      {query: dnsmessage.Message{Questions: []dnsmessage.Question{question("a.example.com.", dnsmessage.TypeALL)}}},
		"a name that is not":             {query: dnsmessage.Message{Questions: []dnsmessage.Question{question("b.example.com.", dnsmessage.TypeA)}}, code: dnsmessage.RCodeNameError},
		"the other address of one":       {query: dnsmessage.Message{Questions: []dnsmessage.Question{question("b.example.com.", dnsmessage.TypeAAAA)}}, code: dnsmessage.RCodeNameError},
		"the root":                       {query: dnsmessage.Message{Questions: []dnsmessage.Question{question(".", dnsmessage.TypeNS)}}, code: dnsmessage.RCodeNameError},
		"another class":                  {query: dnsmessage.Message{Questions: []dnsmessage.Question{chaos}}, code: dnsmessage.RCodeRefused},
		"two questions":                  {query: dnsmessage.Message{Questions: []dnsmessage.Question{a, a}}, code: dnsmessage.RCodeFormatError},
		"no question":                    {query: dnsmessage.Message{}, code: dnsmessage.RCodeFormatError},
		"an update":                      {query: dnsmessage.Message{Header: dnsmessage.Header{OpCode: 5}, Questions: []dnsmessage.Question{a}}, code: dnsmessage.RCodeNotImplemented},
		"an answer that nobody asked of": {query: dnsmessage.Message{Header: dnsmessage.Header{Response: true}, Questions: []dnsmessage.Question{a}}, silent: true},
	} {
		t.Run(name, func(t *testing.T) {
			text := names.Answer(packed(t, test.query), known)
			if test.silent {
				assert.Check(t, text == nil)
				return
			}
			var reply dnsmessage.Message
			assert.NilError(t, reply.Unpack(text))
			assert.Check(t, reply.Response && reply.ID == 7)
			assert.Check(t, is.Equal(reply.RCode, test.code))
			assert.Assert(t, is.Len(reply.Answers, test.addresses))
			for _, found := range reply.Answers {
				assert.Check(t, is.Equal(netip.AddrFrom4(found.Body.(*dnsmessage.AResource).A), address))
				assert.Check(t, found.Header.TTL <= 5)
			}
		})
	}
}

func FuzzAnswer(f *testing.F) {
	query := packed(f, dnsmessage.Message{Questions: []dnsmessage.Question{question("a.example.com.", dnsmessage.TypeA)}})
	f.Add(query)
	f.Add(query[:len(query)-1])
	f.Add(query[:12])
	f.Add([]byte{})
	// A name that points at itself, and one of labels that are too long.
	f.Add(append(append([]byte{}, query[:12]...), 0xc0, 12, 0, 1, 0, 1))
	f.Add(append(append([]byte{}, query[:12]...), 0x80, 0, 0, 1, 0, 1))
	f.Fuzz(func(t *testing.T, query []byte) {
		text := names.Answer(query, known)
		if text == nil {
			return
		}
		var reply dnsmessage.Message
		assert.NilError(t, reply.Unpack(text))
		assert.Assert(t, reply.Response && len(reply.Answers) <= 1 && len(text) <= 512)
		assert.Assert(t, reply.ID == uint16(query[0])<<8|uint16(query[1]))
		if len(reply.Answers) == 1 {
			assert.Assert(t, is.Equal(reply.Questions[0].Name.String(), "a.example.com."))
		}
	})
}
