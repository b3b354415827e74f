-- JSON and its texts, for the class filter; the first of its three parts.

local byte, char, find, gmatch, gsub = string.byte, string.char, string.find, string.gmatch, string.gsub
local lower, match, sub = string.lower, string.match, string.sub
local concat, floor, max, min = table.concat, math.floor, math.max, math.min

-- JSON, walked and not built. Positions are of bytes; nil means that the text ends too early.

local function string_end(s, i)
  while true do
    local quote = find(s, '"', i, true)
    if not quote then return nil end
    local before = quote - 1
    while byte(s, before) == 92 do before = before - 1 end
    if (quote - before) % 2 == 1 then return quote end
    i = quote + 1
  end
end

local function value_end(s, i)
  local c = byte(s, i)
  if c == 34 then
    local quote = string_end(s, i + 1)
    return quote and quote + 1
  end
  if c ~= 123 and c ~= 91 then return find(s, "[%s,%]}]", i) end
  local depth = 0
  while true do
    local p = find(s, '["{}%[%]]', i)
    if not p then return nil end
    c = byte(s, p)
    if c == 34 then
      p = string_end(s, p + 1)
      if not p then return nil end
    elseif c == 123 or c == 91 then
      depth = depth + 1
    else
      depth = depth - 1
    end
    i = p + 1
    if depth == 0 then return i end
  end
end

-- Where the values of an object's wanted members stand; the last of a name counts. `i` is at the brace.
local function members(s, i, wanted)
  local places, empty = {}, true
  i = i + 1
  while true do
    local _, _, p = find(s, '^[%s,]*()"', i)
    if not p then return places, empty end
    empty = false
    local quote = string_end(s, p + 1)
    if not quote then return places, empty end
    local _, _, value = find(s, "^%s*:%s*()", quote + 1)
    if not value or value > #s then return places, empty end
    local name = sub(s, p + 1, quote - 1)
    if wanted[name] then places[name] = value end
    i = value_end(s, value)
    if not i then return places, empty end
  end
end

local ESCAPES = { [98] = "\b", [102] = "\f", [110] = "\n", [114] = "\r", [116] = "\t" }

local function utf8(code)
  if code < 0x80 then return char(code) end
  if code < 0x800 then return char(0xC0 + floor(code / 64), 0x80 + code % 64) end
  if code < 0x10000 then
    return char(0xE0 + floor(code / 4096), 0x80 + floor(code / 64) % 64, 0x80 + code % 64)
  end
  return char(
    0xF0 + floor(code / 262144), 0x80 + floor(code / 4096) % 64, 0x80 + floor(code / 64) % 64, 0x80 + code % 64
  )
end

local function unescaped(raw)
  local slash = find(raw, "\\", 1, true)
  if not slash then return raw end
  local parts, n, i = {}, 0, 1
  while slash do
    n = n + 1
    parts[n] = sub(raw, i, slash - 1)
    local c = byte(raw, slash + 1)
    i = slash + 2
    n = n + 1
    if c == 117 then
      local code = tonumber(match(raw, "^%x%x%x%x", i) or "3f", 16)
      i = i + 4
      if code >= 0xD800 and code < 0xE000 then
        local second = code < 0xDC00 and match(raw, "^\\u([dD][c-fC-F]%x%x)", i)
        if second then
          code = 0x10000 + (code - 0xD800) * 1024 + tonumber(second, 16) - 0xDC00
          i = i + 6
        else
          code = 63
        end
      end
      parts[n] = utf8(code)
    else
      parts[n] = ESCAPES[c] or (c and char(c)) or ""
    end
    slash = find(raw, "\\", i, true)
  end
  parts[n + 1] = sub(raw, i)
  return concat(parts)
end

-- The text of a string; of a very long one both ends, each with more than enough characters whatever they take.
local function text_at(s, i)
  local quote = string_end(s, i + 1) or #s + 1
  local length = quote - i - 1
  if length <= 2 * RAW_END then return unescaped(sub(s, i + 1, quote - 1)) end
  return unescaped(sub(s, i + 1, i + RAW_END)) .. unescaped(sub(s, quote - RAW_END, quote - 1))
end

local function characters(s)
  if not find(s, "[\128-\255]") then return #s end
  local _, n = gsub(s, "[^\128-\191]", "")
  return n
end

local function first_characters(s, n)
  if #s <= n then return s end
  if not find(s, "[\128-\255]") then return sub(s, 1, n) end
  local i, size = 1, #s
  for _ = 1, n do
    if i > size then return s end
    local b = byte(s, i)
    i = i + (b < 128 and 1 or b < 224 and 2 or b < 240 and 3 or 4)
  end
  return sub(s, 1, i - 1)
end

local function last_characters(s, n)
  if #s <= n then return s end
  if not find(s, "[\128-\255]") then return sub(s, -n) end
  local i = #s + 1
  for _ = 1, n do
    if i <= 1 then return s end
    i = i - 1
    while i > 1 do
      local b = byte(s, i)
      if b < 128 or b > 191 then break end
      i = i - 1
    end
  end
  return sub(s, i)
end
