-- Names the cluster of a request: its class, the models' group, and what it asks of a replica.
-- The tables above this line are generated from the rules that the in-process classifier uses.

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

-- The prompt.

local TEXT_OR_CONTENT = { text = true, content = true }

local function items(s, i)
  local places, n = {}, 0
  i = i + 1
  while true do
    local _, _, p = find(s, "^[%s,]*()[^%s,%]]", i)
    if not p then return places, n end
    n = n + 1
    places[n] = p
    i = value_end(s, p)
    if not i then return places, n end
  end
end

local function collect(s, i, texts, left, backwards, depth)
  local c = byte(s, i)
  if c == 34 then
    local text = text_at(s, i)
    if text ~= "" then
      texts[#texts + 1] = text
      left = left - characters(text)
    end
  elseif c == 91 and depth < 4 then
    local first = match(s, "^%[%s*([%d%-])", i)
    if first then return left end -- token ids
    local places, n = items(s, i)
    local from, to, step = 1, min(n, ITEMS_AT_EACH_END), 1
    if backwards then from, to, step = n, max(1, n - ITEMS_AT_EACH_END + 1), -1 end
    for k = from, to, step do
      left = collect(s, places[k], texts, left, backwards, depth + 1)
      if left <= 0 then break end
    end
  elseif c == 123 then
    local found = members(s, i, TEXT_OR_CONTENT)
    if found.text and byte(s, found.text) == 34 then
      local text = text_at(s, found.text)
      texts[#texts + 1] = text
      left = left - characters(text)
    elseif found.content then
      left = collect(s, found.content, texts, left, backwards, depth + 1)
    end
  end
  return left
end

local function gather(s, places, backwards)
  local texts, left = {}, WINDOW
  local from, to, step = 1, #PROMPT_MEMBERS, 1
  if backwards then from, to, step = to, 1, -1 end
  for k = from, to, step do
    local place = places[PROMPT_MEMBERS[k]]
    if place then left = collect(s, place, texts, left, backwards, 1) end
    if left <= 0 then break end
  end
  return texts, left
end

local function prompt_text(s, places)
  local first, left = gather(s, places, false)
  if left > 0 then return concat(first, "\n") end
  local last = gather(s, places, true)
  if #first == 1 and #last == 1 and first[1] == last[1] then
    local text = first[1]
    if characters(text) <= 2 * WINDOW then return text end
    return first_characters(text, WINDOW) .. "\n" .. last_characters(text, WINDOW)
  end
  local n = #last
  for k = 1, floor(n / 2) do last[k], last[n + 1 - k] = last[n + 1 - k], last[k] end
  return first_characters(concat(first, "\n"), WINDOW) .. "\n" .. last_characters(concat(last, "\n"), WINDOW)
end

-- The score.

local function is_code(line)
  local start = match(line, "^%s*(.*)$")
  local candidates = STARTS[sub(start, 1, 1)]
  if not candidates then return false end
  for k = 1, #candidates do
    local candidate = candidates[k]
    if sub(start, 1, #candidate) == candidate then
      for j = 1, #STARTS_OF_PROSE do
        local prose = STARTS_OF_PROSE[j]
        if sub(start, 1, #prose) == prose then
          return CODE_LINE_ENDS[sub(start, -1)] == true or find(start, " import ", 1, true) ~= nil
        end
      end
      return true
    end
  end
  return false
end

local function code_lines(raw)
  if find(raw, "\r", 1, true) then raw = gsub(gsub(raw, "\r\n", "\n"), "\r", "\n") end
  local starts, n, i = {}, 0, 1
  while i <= #raw do
    n = n + 1
    starts[n] = i
    i = (find(raw, "\n", i, true) or #raw) + 1
  end
  local half, found = LINES / 2, 0
  for k = 1, n do
    if n <= LINES or k <= half or k > n - half then
      local stop = k < n and starts[k + 1] - 2 or (byte(raw, #raw) == 10 and #raw - 1 or #raw)
      if is_code(sub(raw, starts[k], stop)) then
        found = found + 1
        if found == MOST_CODE_LINES then return found end
      end
    end
  end
  return found
end

local function score(text)
  if not find(text, "%S") then return "unsure" end
  local raw = lower(text)
  local lines = code_lines(raw)
  local structured = lines
  if find(raw, "```", 1, true) then structured = structured + FENCE_SCORE end
  if structured > MOST_CHAT_WORDS then return "structured" end
  local density = #gsub(raw, NOT_SYMBOLS, "") / #raw
  if density > DENSE then structured = structured + (density < DENSER and 1 or 2) end
  local chat = (lines == 0 and density < PLAIN) and PLAIN_SCORE or 0
  if structured > MOST_CHAT_WORDS + chat then return "structured" end
  local languages, nouns, verbs, maths, chats, seen = 0, 0, 0, 0, 0, {}
  for word in gmatch(raw, WORD) do
    local counts = WORDS[word]
    if counts and not seen[word] then
      seen[word] = true
      languages, nouns, verbs = languages + counts[1], nouns + counts[2], verbs + counts[3]
      maths, chats = maths + counts[4], chats + counts[5]
    end
  end
  structured = structured + min(MOST_FROM_LANGUAGES, LANGUAGE_SCORE * languages)
  if nouns > 0 then
    structured = structured + min(MOST_FROM_NOUNS, NOUN_SCORE * nouns) + (verbs > 0 and VERB_SCORE or 0)
  end
  structured = structured + min(MOST_FROM_MATH, MATH_SCORE * maths)
  chat = chat + min(MOST_CHAT_WORDS, chats)
  if structured >= STRUCTURED_FROM and structured > chat then return "structured" end
  if chat >= CHAT_FROM and chat > structured then return "chat" end
  return "unsure"
end

-- What the request asks of a replica.

local function truthy(s, i)
  return not (find(s, "^null", i) or find(s, "^false", i) or find(s, '^""', i) or find(s, "^{%s*}", i)
    or find(s, "^%[%s*%]", i) or find(s, "^%-?0[%s,}%]]", i) or find(s, "^%-?0%.0*[%s,}%]]", i))
end

local TYPE, FORMAT = { type = true }, { format = true }

local function constrains(s, i)
  if byte(s, i) ~= 123 then return false end
  local found, empty = members(s, i, TYPE)
  if empty then return false end
  local kind = found.type and byte(s, found.type) == 34 and text_at(s, found.type)
  return not (kind and FREE_TYPES[kind])
end

local function asks_for_structure(s, places)
  for k = 1, #GRAMMARS do
    local place = places[GRAMMARS[k]]
    if place and truthy(s, place) then return true end
  end
  for k = 1, #FORMATS do
    local place = places[FORMATS[k]]
    if place and constrains(s, place) then return true end
  end
  for k = 1, #FORMAT_HOLDERS do
    local place = places[FORMAT_HOLDERS[k]]
    if place and byte(s, place) == 123 then
      local found = members(s, place, FORMAT)
      if found.format and constrains(s, found.format) then return true end
    end
  end
  local choice = places.tool_choice
  return choice ~= nil and (find(s, '^"required"', choice) ~= nil or constrains(s, choice))
end

local function demands(s, places)
  local sampling = false
  if places.min_p then
    local number = tonumber(match(s, "^[%d%.eE+%-]+", places.min_p))
    sampling = number ~= nil and number > 0
  end
  if not sampling and places.logit_bias then sampling = truthy(s, places.logit_bias) end
  local wanted = sampling and DEMAND_SAMPLING or ""
  if KEEPS_STRUCTURE_APART and asks_for_structure(s, places) then wanted = wanted .. DEMAND_STRUCTURE end
  return wanted
end

-- The filter.

local function refuse(handle, status, message, code)
  local kind = status == "404" and "not_found_error" or "invalid_request_error"
  handle:respond(
    { [":status"] = status, ["content-type"] = "application/json" },
    '{"error": {"message": "' .. message .. '", "type": "' .. kind .. '", "code": "' .. code .. '"}}'
  )
end

local function by_rule(path, model)
  for k = 1, #RULES do
    local rule = RULES[k]
    if (rule.path == nil or rule.path == path) and (rule.model == nil or rule.model == model) then
      return rule.class
    end
  end
end

local function named_class(headers, known)
  local name = HEADER and headers:get(HEADER)
  if not name then return nil end
  name = lower(match(name, "^%s*(.-)%s*$"))
  return known:get("class:" .. (ALIASES[name] or name))
end

function envoy_on_request(handle)
  local headers = handle:headers()
  local path = match(headers:get(":path") or "", "^[^?]*")
  local kind = PATHS[path]
  if not kind or headers:get(":method") == "OPTIONS" then return end
  local known = handle:metadata()
  local cluster = named_class(headers, known)
  local group, wanted = known:get("model"), ""
  if kind == "opaque" then
    cluster = cluster or known:get("class:" .. (by_rule(path, nil) or DEFAULT))
  else
    local coding = headers:get("content-encoding")
    if coding and coding ~= "" and lower(coding) ~= "identity" then
      return refuse(handle, "415", "a compressed request body is not accepted", "unsupported_encoding")
    end
    local body = handle:body()
    known = handle:metadata() -- what was handed out before the wait may not be used behind it
    local s = body and body:getBytes(0, min(body:length(), LOOKED_AT)) or ""
    local start = find(s, "^%s*{")
    local places = start and members(s, find(s, "{", 1, true), WANTED) or {}
    local model = places.model and byte(s, places.model) == 34 and text_at(s, places.model) or nil
    if model == "" then model = nil end
    if model then
      group = known:get("model:" .. model) or known:get("other")
      if not group then
        return refuse(handle, "404", "no replica has the model that the request names", "model_not_found")
      end
    end
    if not cluster then
      local name = by_rule(path, model)
      if not name and kind == "prompt" then
        name = score(prompt_text(s, places))
        if name == "unsure" then name = nil end
      end
      cluster = known:get("class:" .. (name or DEFAULT))
    end
    wanted = demands(s, places)
  end
  handle:headers():replace(CLUSTER_HEADER, (group or "any") .. "-" .. (cluster or "") .. wanted)
  handle:clearRouteCache()
end
