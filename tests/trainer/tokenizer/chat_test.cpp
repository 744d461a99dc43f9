#include "trainer/tokenizer/chat.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace trainyard::tokenizer {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

const std::vector<Message> kChat = {{"system", " Be brief. ", ""},
                                    {"user", "Hi ", ""},
                                    {"assistant", "Hello", ""},
                                    {"user", "One more", ""},
                                    {"assistant", " Bye\n", ""}};
const std::vector<Message> kPlain(kChat.begin() + 1, kChat.end());

std::vector<std::string> Answers(const RenderedChat& chat) {
  std::vector<std::string> answers;
  for (const Span& span : chat.answers) answers.push_back(chat.text.substr(span.begin, span.end - span.begin));
  return answers;
}

TEST(RenderChat, ChatML) {
  const RenderedChat chat = RenderChat(ChatStyle::kChatML, kChat, {}).value();
  EXPECT_EQ(chat.text,
            "<|im_start|>system\n Be brief. <|im_end|>\n<|im_start|>user\nHi "
            "<|im_end|>\n<|im_start|>assistant\nHello<|im_end|>\n"
            "<|im_start|>user\nOne more<|im_end|>\n<|im_start|>assistant\n Bye\n<|im_end|>\n");
  EXPECT_THAT(Answers(chat), ElementsAre("Hello<|im_end|>", " Bye\n<|im_end|>"));
}

TEST(RenderChat, QwenAndSmolLMSpeakForTheSystemWhereNobodyDoes) {
  const auto head = [](ChatStyle style, const std::vector<Message>& chat) {
    const std::string text = RenderChat(style, chat, {}).value().text;
    return text.substr(0, text.find("<|im_start|>user"));
  };
  EXPECT_EQ(head(ChatStyle::kQwen2, kPlain), "<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n");
  EXPECT_EQ(head(ChatStyle::kQwen25, kPlain),
            "<|im_start|>system\nYou are Qwen, created by Alibaba Cloud. You are a helpful assistant.<|im_end|>\n");
  EXPECT_EQ(head(ChatStyle::kSmolLM2, kPlain),
            "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n");
  EXPECT_EQ(head(ChatStyle::kQwen25, kChat), "<|im_start|>system\n Be brief. <|im_end|>\n");
  EXPECT_EQ(head(ChatStyle::kQwen3, kPlain), "");
}

TEST(RenderChat, Qwen3KeepsThoughtsBehindTheLastQuestion) {
  EXPECT_THAT(Answers(RenderChat(ChatStyle::kQwen3, kPlain, {}).value()),
              ElementsAre("Hello<|im_end|>", "<think>\n\n</think>\n\n Bye\n<|im_end|>"));
  const std::vector<Message> thoughts = {{"user", "Q", ""},
                                         {"assistant", "<think>\nearly\n</think>\n\nA", ""},
                                         {"user", "Q", ""},
                                         {"assistant", "<think>\nlate\n</think>\n\nB", ""}};
  EXPECT_THAT(Answers(RenderChat(ChatStyle::kQwen3, thoughts, {}).value()),
              ElementsAre("A<|im_end|>", "<think>\nlate\n</think>\n\nB<|im_end|>"));
  EXPECT_THAT(Answers(RenderChat(ChatStyle::kQwen3, {{"user", "Q", ""}, {"assistant", "B", "given\n"}}, {}).value()),
              ElementsAre("<think>\ngiven\n</think>\n\nB<|im_end|>"));
}

TEST(RenderChat, Llama3) {
  const RenderedChat chat = RenderChat(ChatStyle::kLlama3, kChat, {}).value();
  EXPECT_EQ(chat.text,
            "<|begin_of_text|><|start_header_id|>system<|end_header_id|>\n\nBe brief.<|eot_id|>"
            "<|start_header_id|>user<|end_header_id|>\n\nHi<|eot_id|>"
            "<|start_header_id|>assistant<|end_header_id|>\n\nHello<|eot_id|>"
            "<|start_header_id|>user<|end_header_id|>\n\nOne more<|eot_id|>"
            "<|start_header_id|>assistant<|end_header_id|>\n\nBye<|eot_id|>");
  EXPECT_THAT(Answers(chat), ElementsAre("Hello<|eot_id|>", "Bye<|eot_id|>"));
  EXPECT_THAT(
      RenderChat(ChatStyle::kLlama31, kPlain, {}).value().text,
      HasSubstr("<|begin_of_text|><|start_header_id|>system<|end_header_id|>\n\nCutting Knowledge Date: December "
                "2023\nToday Date: 26 Jul 2024\n\n<|eot_id|><|start_header_id|>user"));
  EXPECT_THAT(RenderChat(ChatStyle::kLlama31, kChat, {}).value().text,
              HasSubstr("Today Date: 26 Jul 2024\n\nBe brief.<|eot_id|><|start_header_id|>user"));
}

// As Python strips: white space of Unicode, too, and of that only whole characters.
TEST(RenderChat, StripsWhatPythonStrips) {
  const std::string spaces = "\xc2\xa0\t\xe3\x80\x80\x1f\xe2\x80\x89";
  const auto answer = [](const std::string& content) {
    return Answers(RenderChat(ChatStyle::kLlama3, {{"user", "Q", ""}, {"assistant", content, ""}}, {}).value()).at(0);
  };
  EXPECT_EQ(answer(spaces + "a" + spaces + "b" + spaces), "a" + spaces + "b<|eot_id|>");
  EXPECT_EQ(answer("\xe2\x80\x8b\xe3\x80\x81"), "\xe2\x80\x8b\xe3\x80\x81<|eot_id|>");  // neither is white space
  EXPECT_FALSE(RenderChat(ChatStyle::kChatML, {{"assistant", spaces, ""}}, {}).has_value());
}

TEST(RenderChat, Llama2AndMistral) {
  const RenderedChat llama = RenderChat(ChatStyle::kLlama2, kChat, {}).value();
  EXPECT_EQ(llama.text,
            "<s>[INST] <<SYS>>\n Be brief. \n<</SYS>>\n\nHi [/INST] Hello </s><s>[INST] One more [/INST] Bye </s>");
  EXPECT_THAT(Answers(llama), ElementsAre(" Hello </s>", " Bye </s>"));
  const RenderedChat mistral = RenderChat(ChatStyle::kMistral, kPlain, {}).value();
  EXPECT_EQ(mistral.text, "<s>[INST] Hi  [/INST]Hello</s>[INST] One more [/INST] Bye\n</s>");
  EXPECT_THAT(Answers(mistral), ElementsAre("Hello</s>", " Bye\n</s>"));
}

// As the models' templates render with add_generation_prompt.
TEST(RenderChatPrompt, EndsWhereTheAnswerBegins) {
  const std::vector<Message> question = {{"user", "Hi", ""}};
  const auto prompt = [](ChatStyle style, const std::vector<Message>& messages) {
    return RenderChatPrompt(style, messages, {}).value();
  };
  const std::string chatml = "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n";
  EXPECT_EQ(prompt(ChatStyle::kChatML, question), chatml);
  EXPECT_EQ(prompt(ChatStyle::kQwen2, question),
            "<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n" + chatml);
  EXPECT_EQ(prompt(ChatStyle::kQwen3, question), chatml);
  EXPECT_EQ(prompt(ChatStyle::kLlama3, question),
            "<|begin_of_text|><|start_header_id|>user<|end_header_id|>\n\nHi<|eot_id|><|start_header_id|>assistant"
            "<|end_header_id|>\n\n");
  EXPECT_EQ(prompt(ChatStyle::kLlama2, question), "<s>[INST] Hi [/INST]");
  EXPECT_EQ(prompt(ChatStyle::kMistral, question), "<s>[INST] Hi [/INST]");
  // A conversation that goes on, with thoughts before the last question left out.
  EXPECT_EQ(prompt(ChatStyle::kQwen3, {{"user", "Hi", ""}, {"assistant", "Hello", "hm"}, {"user", "Hi", ""}}),
            chatml + "Hello<|im_end|>\n" + chatml);
  EXPECT_THAT(RenderChatPrompt(ChatStyle::kMistral, {{"assistant", "a", ""}}, {}).error().message,
              HasSubstr("message 1 is of the assistant where this template needs one of the user"));
}

TEST(RenderChat, RefusesWhatTeachesNothing) {
  const auto error = [](ChatStyle style, const std::vector<Message>& chat) {
    return RenderChat(style, chat, {}).error().message;
  };
  EXPECT_EQ(error(ChatStyle::kChatML, {{"user", "a", ""}, {"assistant", " \n", ""}}),
            "message 2 is an empty answer: there is nothing to learn from it");
  EXPECT_EQ(error(ChatStyle::kChatML, {{"user", "a", ""}}),
            "no message is of the assistant: there is nothing to learn");
  EXPECT_EQ(error(ChatStyle::kChatML, {}), "no message is of the assistant: there is nothing to learn");
  EXPECT_EQ(error(ChatStyle::kLlama3, {{"tool", "a", ""}}),
            "message 1 has the role 'tool'; system, user and assistant are known");
  EXPECT_EQ(error(ChatStyle::kLlama3, {{"user", "a", ""}, {"system", "b", ""}}),
            "message 2 is of the system; only the first one may be");
  EXPECT_EQ(error(ChatStyle::kMistral, kChat), "message 1 is of the system, which this template has no place for");
  EXPECT_EQ(error(ChatStyle::kLlama2, {{"user", "a", ""}, {"user", "b", ""}, {"assistant", "c", ""}}),
            "message 2 is of the user where this template needs one of the assistant");
}

// Each as its publisher wrote it, with the spellings that differ between them.
TEST(RecogniseChatStyle, KnowsTheFamilies) {
  const auto name = [](const std::string& jinja) {
    const auto style = RecogniseChatStyle(jinja);
    return style ? ChatStyleName(*style) : style.error().message;
  };
  EXPECT_EQ(
      name("{% for message in messages %}{{'<|im_start|>' + message['role'] + '\n' + message['content'] + "
           "'<|im_end|>' + '\n'}}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"),
      "chatml");
  EXPECT_EQ(name("{%- for message in messages -%}\n {{- \"<|im_start|>\" + message.role + \"\\n\" + message.content + "
                 "\"<|im_end|>\" + \"\\n\" -}}\n{%- endfor -%}"),
            "chatml");
  EXPECT_EQ(name("{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}{{ "
                 "'<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n' }}{% endif %}{{'<|im_start|>' + "
                 "message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'}}{% endfor %}"),
            "qwen2");
  EXPECT_EQ(
      name("{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}{{ "
           "'<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n' "
           "}}{% endif %}{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + "
           "'\n'}}{% endfor %}"),
      "smollm2");
  EXPECT_EQ(
      name(
          "{# it's a comment #}{% for message in messages %}{% set content = '<|start_header_id|>' + message['role'] + "
          "'<|end_header_id|>\n\n'+ message['content'] | trim + '<|eot_id|>' %}{% if loop.index0 == 0 %}{% set content "
          "= bos_token + content %}{% endif %}{{ content }}{% endfor %}"),
      "llama3");
  EXPECT_EQ(
      name("{{ bos_token }}{% for message in messages %}{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) "
           "%}{{ raise_exception('no') }}{% endif %}{% if message['role'] == 'user' %}{{ '[INST] ' + "
           "message['content'] + ' [/INST]' }}{% elif message['role'] == 'assistant' %}{{ message['content'] + "
           "eos_token}}{% endif %}{% endfor %}"),
      "mistral");
}

// A system message, a space or a trimmed answer more: another template.
TEST(RecogniseChatStyle, DoesNotGuess) {
  const auto unknown =
      HasSubstr("is none of chatml, qwen2, qwen2.5, smollm2, qwen3, llama3, llama3.1, llama2, mistral; name");
  EXPECT_THAT(RecogniseChatStyle("").error().message, unknown);
  EXPECT_THAT(RecogniseChatStyle("{% for m in messages %}{{ '<|user|>' + m['content'] }}{% endfor %}").error().message,
              unknown);
  EXPECT_THAT(RecogniseChatStyle(
                  "{{ '<|im_start|>system\nI am another.<|im_end|>\n' }}{% for message in messages %}{{"
                  "'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'}}{% endfor %}")
                  .error()
                  .message,
              unknown);
  EXPECT_THAT(RecogniseChatStyle(
                  "{{ bos_token }}{{ '[INST] ' + message['content'] + ' [/INST]' }}{{ ' ' + message['content'] + "
                  "eos_token }}")
                  .error()
                  .message,
              unknown);
}

TEST(ChatStyleOf, NamesTheChoices) {
  EXPECT_EQ(ChatStyleOf("qwen2.5").value(), ChatStyle::kQwen25);
  EXPECT_EQ(ChatStyleOf("vicuna").error().message,
            "'vicuna' is no chat template; there are chatml, qwen2, qwen2.5, smollm2, qwen3, llama3, llama3.1, llama2, "
            "mistral");
}

}  // namespace
}  // namespace trainyard::tokenizer
