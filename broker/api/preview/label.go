package preview

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base32"
	"encoding/binary"
	"hash/fnv"
	"strconv"
	"strings"
	"time"
)

// A label stands before the domain of previews: PORT-TOKEN. It has 63 characters at
// most and means the same in capitals, as names of hosts want it. There is no room in
// it for the name of an instance, so whoever verifies it says which it may be for.
const (
	labelSum  = 24 // bytes of the signature
	labelHint = 4
	labelTime = 5
)

var labelEncoding = base32.NewEncoding("abcdefghijklmnopqrstuvwxyz234567").WithPadding(base32.NoPadding)

// labelPurpose keeps the signatures of labels apart from those of tokens.
const labelPurpose = "sandbox-broker preview host 1\n"

// Label is one that was read, and not verified.
type Label struct {
	Port    uint16
	Expires time.Time
	hint    uint32
	sum     []byte
}

// Label returns the label of a grant. It expires at a whole second.
func (s *Signer) Label(g Grant) string {
	token := binary.BigEndian.AppendUint64(nil, uint64(g.Expires.Unix()))[8-labelTime:]
	token = binary.BigEndian.AppendUint32(token, hintOf(g.InstanceID))
	token = append(token, s.labelSum(g)...)
	return strconv.Itoa(int(g.Port)) + "-" + labelEncoding.EncodeToString(token)
}

// ReadLabel reads a label that has not expired, or returns ErrInvalid.
func ReadLabel(text string, now time.Time) (Label, error) {
	text = strings.ToLower(text)
	port, token, _ := strings.Cut(text, "-")
	number, err := strconv.ParseUint(port, 10, 16)
	if err != nil || number == 0 || strconv.FormatUint(number, 10) != port {
		return Label{}, ErrInvalid
	}
	raw, err := labelEncoding.DecodeString(token)
	if err != nil || len(raw) != labelTime+labelHint+labelSum || labelEncoding.EncodeToString(raw) != token {
		return Label{}, ErrInvalid
	}
	seconds := binary.BigEndian.Uint64(append(make([]byte, 8-labelTime), raw[:labelTime]...))
	l := Label{
		Port: uint16(number), Expires: time.Unix(int64(seconds), 0).UTC(),
		hint: binary.BigEndian.Uint32(raw[labelTime:]), sum: raw[labelTime+labelHint:],
	}
	if !now.Before(l.Expires) {
		return Label{}, ErrInvalid
	}
	return l, nil
}

// VerifyLabel reports whether a label is for an instance.
func (s *Signer) VerifyLabel(l Label, tenant, instanceID string) bool {
	if l.hint != hintOf(instanceID) { // most are sorted out without a sum
		return false
	}
	return hmac.Equal(l.sum, s.labelSum(Grant{Tenant: tenant, InstanceID: instanceID, Port: l.Port, Expires: l.Expires}))
}

func hintOf(instanceID string) uint32 {
	h := fnv.New32a()
	_, _ = h.Write([]byte(instanceID)) // it never fails
	return h.Sum32()
}

func (s *Signer) labelSum(g Grant) []byte {
	mac := hmac.New(sha256.New, s.key)
	for _, part := range []string{labelPurpose, g.Tenant, g.InstanceID, strconv.Itoa(int(g.Port)), strconv.FormatInt(g.Expires.Unix(), 10)} {
		mac.Write([]byte(part))
		mac.Write([]byte{0})
	}
	return mac.Sum(nil)[:labelSum]
}
